"""Options of Sphinx for the documentation site; `stage.py` makes its source, `make site` runs both."""

project = "rocketstore"
html_title = "rocketstore"
extensions = ["myst_parser"]
exclude_patterns = ["tree"]
html_theme = "furo"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False

# Headings are targets of links, by the names that they have in the repository's own view.
myst_heading_anchors = 4
# Every problem is an error by -W: a link to nowhere, a page in no list, a fence that is not closed.
nitpicky = True
