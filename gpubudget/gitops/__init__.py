"""From YAML in git to an applied tree."""
