"""Sources of `redfuser.rules` (mapped by the build; see pyproject.toml)."""

if __name__ != "redfuser.rules":
    raise ImportError("import redfuser.rules, not the bare folder name rules")
