"""How long a browser takes until a report page can be used."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LONGEST = 60  # seconds


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window. Raises ImportError without selenium, FileNotFoundError without the browser."""
    from selenium import webdriver

    program, driven_by = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driven_by is None:
        raise FileNotFoundError("no chromium with its driver is installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,900"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driven_by))
    try:
        yield driver
    finally:
        driver.quit()


def milliseconds_until_ready(driver: Any, page: Path) -> float:
    """From the beginning of the navigation until the page says that it has drawn and takes clicks and keys."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get("about:blank")
    driver.get(page.absolute().as_uri())
    return float(
        WebDriverWait(driver, LONGEST, 0.02).until(lambda d: d.execute_script("return document.body?.dataset.ready"))
    )
