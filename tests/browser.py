"""A real browser for the tests of pages: headless chromium, driven by selenium, one for the whole run."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = (1400, 900)


class Browser:
    """The browser, and what it has said and asked for since a page was opened."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, hash_: str = "", ready: str = "return document.readyState === 'complete'") -> None:
        """Open a page from a file, and wait until an expression is true."""
        self.driver.get("about:blank")  # else another hash alone would not load it again
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(path.resolve().as_uri() + hash_)
        self.wait(ready)

    def run(self, script: str, *args: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *args)

    def wait(self, script: str, *args: Any, seconds: float = 20) -> Any:
        """What a script returns once that is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script, *args)):
            assert time.monotonic() < end, f"not in time: {script}\n{self.messages()}"
            time.sleep(0.02)
        return value

    def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def click(self, x: float, y: float, times: int = 1) -> None:
        """Click at a point of the window."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.driver, duration=0)
        actions.pointer_action.move_to_location(round(x), round(y))
        for _ in range(times):
            actions.pointer_action.click()
        actions.perform()

    def resize(self, width: int, height: int) -> None:
        """Show the page in a window of that size, which may be as narrow as a phone's; no size: as it was."""
        if width:
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        else:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def messages(self) -> list[str]:
        """What the console was told: errors and warnings."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses of all that was asked for since the page was opened."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def save_to(self, folder: Path) -> None:
        """Where files go that a page gives to save."""
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def wait_for_file(self, folder: Path, pattern: str, seconds: float = 20) -> Path:
        """The file of a name that was saved, when it is whole; it is given its name only then."""
        end = time.monotonic() + seconds
        while not (found := [path for path in folder.glob(pattern) if path.suffix != ".crdownload"]):
            assert time.monotonic() < end, f"nothing like {pattern} was saved: {list(folder.glob('*'))}"
            time.sleep(0.02)
        return found[0]

    def scheme(self, name: str) -> None:
        """Prefer light or dark."""
        features = [
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless chromium, which `./run test` installs."""
    from selenium import webdriver

    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.fail("install chromium and chromium-driver, as `./run test` does")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={SIZE[0]},{SIZE[1]}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened = Browser(chrome)
    opened.scheme("light")
    yield opened
    chrome.quit()
