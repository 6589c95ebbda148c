"""Sources of `redfuser.extract` (mapped by the build; see pyproject.toml)."""

if __name__ != "redfuser.extract":
    raise ImportError("import redfuser.extract, not the bare folder name extract")
