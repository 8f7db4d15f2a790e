"""A contract of import-linter: what one room imports of another is in the `__all__` of that room."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output

ROOT = Path(__file__).parents[2]


class Doors(Contract):
    """`__all__` of a package names the modules and folders that other rooms may import."""

    type_name = "doors"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find imports between rooms that pass no door."""
        offered: dict[str, frozenset[str]] = {}
        passed_by = []
        for importer in sorted(graph.modules):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if "." not in importer or "." not in imported:  # the public names
                    continue
                room = imported.split(".")
                if importer.split(".")[1] == room[1]:
                    continue
                for depth in range(2, len(room)):
                    package = ".".join(room[:depth])
                    if package not in offered:
                        offered[package] = _offered(package)
                    if room[depth] not in offered[package]:
                        passed_by.append((importer, imported, package))
                        break
        return ContractCheck(kept=not passed_by, metadata={"passed_by": passed_by})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Say which import passes which door by."""
        passed_by: list[tuple[str, str, str]] = check.metadata["passed_by"]
        for importer, imported, package in passed_by:
            output.print_error(f"{importer} imports {imported}, which {package} does not name in __all__")


def _offered(package: str) -> frozenset[str]:
    """`__all__` of a package, read without an import."""
    tree = ast.parse((ROOT.joinpath(*package.split(".")) / "__init__.py").read_text(encoding="utf-8"))
    values: list[Any] = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    return frozenset(values[0]) if values else frozenset()
