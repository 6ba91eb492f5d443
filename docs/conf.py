"""How the documentation is built: `./run docs`.

Nothing is fetched: links into the documentation of Python and torch would need their inventories from the network, so
names of theirs are plain text here.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

import fastexport  # noqa: E402

project = "fastexport"
author = "The fastexport authors"
copyright = "the fastexport authors"
version = release = fastexport.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_design",
    "public_names",
    "generated_pages",
]
exclude_patterns = ["extensions", "**/.ipynb_checkpoints"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Notebooks that need no torch are run; of the others what they hold is shown, which tests/test_notebooks.py checks.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_excludepatterns = [
    f"generated/examples/{path.name}"
    for path in sorted((HERE.parent / "examples").glob("*.ipynb"))
    if "import torch" in path.read_text()
]

autodoc_member_order = "groupwise"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_use_ivar = True
default_role = "name"  # of public_names.py: docstrings say `name`

html_theme = "pydata_sphinx_theme"
html_title = "fastexport"
html_static_path = ["static"]
html_extra_path = ["generated/pages"]
html_css_files = ["fastexport.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "quickstart": [], "concepts": []}
