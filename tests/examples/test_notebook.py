"""The notebook runs from top to bottom, and is stored without outputs."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install -e .[examples]")
nbclient = pytest.importorskip("nbclient", reason="pip install -e .[examples]")

PATH = Path(__file__).parents[2] / "examples" / "first_posterior.ipynb"


def test_notebook_is_stored_without_outputs():
    cells = [c for c in nbformat.read(PATH, as_version=4).cells if c.cell_type == "code"]
    assert cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's own dependencies
def test_notebook_runs(tmp_path):
    notebook = nbformat.read(PATH, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    assert "guide averages over, steps        10" in text
    assert "Diagnosis" in text
    assert any("image/png" in output.get("data", {}) for output in outputs)
