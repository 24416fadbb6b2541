"""One command after the other, by what they are about. `cli/root.py` names them all and imports them lazily."""
