"""Sources of `redfuser.codegen` (mapped by the build; see pyproject.toml)."""

if __name__ != "redfuser.codegen":
    raise ImportError("import redfuser.codegen, not the bare folder name codegen")
