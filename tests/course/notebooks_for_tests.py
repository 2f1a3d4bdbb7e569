"""Small notebooks for the tests of the course's tools."""

import json


def cell(source, *tags, kind="code"):
    made = {"cell_type": kind, "metadata": {}, "source": source}
    if tags:
        made["metadata"]["tags"] = list(tags)
    if kind == "code":
        made |= {"execution_count": None, "outputs": []}
    return made


def markdown(source, *tags):
    return cell(source, *tags, kind="markdown")


def notebook(*cells):
    return {
        "cells": [c | {"id": f"cell-{i}"} for i, c in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python",
                           "name": "python3"},
            "language_info": {"name": "python"}},
        "nbformat": 4, "nbformat_minor": 5}


def save(folder, name, *cells, heading="# A layer"):
    """Write a chapter; strings are exported cells."""
    folder.mkdir(parents=True, exist_ok=True)
    cells = [cell(c, "export") if isinstance(c, str) else c for c in cells]
    if heading:
        cells.insert(0, markdown(heading))
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps(notebook(*cells)), encoding="utf-8",
                    newline="\n")
    return path
