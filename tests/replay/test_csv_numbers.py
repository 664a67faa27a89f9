"""Laws of numbers in CSV: what JSON cannot hold is refused with its line, not taken for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replay.predictions.outcomes_file import OutcomeError, read_outcomes

HEADER = "workflow_type,confidence,correct,gain,cost"


def refused(folder: Path, row: str) -> str:
    file = folder / "o.csv"
    file.write_text(f"{HEADER},at\nr,0.8,true,4,6,\n{row}\n")
    with pytest.raises(OutcomeError) as error:
        list(read_outcomes(file, ()))
    return str(error.value)


@pytest.mark.parametrize("cell", ["inf", "-inf", "Infinity", "1e999", "-1e400", "9" * 400])
@pytest.mark.parametrize("column", ["confidence", "gain", "cost", "at"])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, cell: str, column: str) -> None:
    cells: dict[str, Any] = {"confidence": "0.8", "gain": "4", "cost": "6", "at": ""}
    cells[column] = cell
    message = refused(tmp_path, "r,{confidence},true,{gain},{cost},{at}".format(**cells))
    assert f"o.csv, line 3: {column} must be" in message
    assert "not '" in message


@pytest.mark.parametrize("cell", ["4_00", "0_1.5", "1e1_0", "٤", "٠.٥", "４"])
@pytest.mark.parametrize("column", ["confidence", "gain", "cost", "at"])
def test_numbers_in_python_syntax_only_are_refused(tmp_path: Path, cell: str, column: str) -> None:
    cells: dict[str, Any] = {"confidence": "0.8", "gain": "4", "cost": "6", "at": ""}
    cells[column] = cell
    message = refused(tmp_path, "r,{confidence},true,{gain},{cost},{at}".format(**cells))
    assert f"o.csv, line 3: {column} must be" in message
    assert f"not '{cell}'" in message


@pytest.mark.parametrize("cell", ["", "nan", "NaN", "-nan"])
def test_nan_is_no_value(tmp_path: Path, cell: str) -> None:
    file = tmp_path / "o.csv"
    file.write_text(f"{HEADER}\nr,0.8,true,{cell},6\n")
    ((_, outcome),) = read_outcomes(file, ())
    assert (outcome.gain, outcome.cost) == (0.0, 6.0)


def test_a_number_of_more_than_64_bits_is_a_number(tmp_path: Path) -> None:
    assert "0 to 1e+15 ms" in refused(tmp_path, f"r,0.8,true,{'9' * 30},6,")
