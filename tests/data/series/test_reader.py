"""The CSV reader: what it reads, what it mends and says, what it refuses with file and line."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kws_s5.config import RunConfig, SeriesData, from_dict, to_dict
from kws_s5.data.batch import collate
from kws_s5.data.series import example as series_example
from kws_s5.data.series.csv_file import pieces, read_table
from kws_s5.data.series.reader import build
from kws_s5.errors import UserError

HEADER = "id,t,x,z,y\n"
SPLIT = "id,t,split,x,y\n"
CELLS = st.one_of(
    st.sampled_from(["a", "b", "0", "1.5", "-2", "1e300", "nan", "inf", "", '"', "2024-01-01 10:00"]),
    st.floats(width=32).map(str),
    st.text(max_size=4),
)


@pytest.fixture
def csv(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "mine.csv"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_columns_are_sorted_into_features_and_targets(csv) -> None:
    table = read_table(csv(HEADER + "a,0,1,2,3\na,0.5,4,5,6\nb,0,7,8,9\nb,1,1,1,1\n"), ["z"])
    assert table.features == ("x", "y") and table.targets == ("z",) and table.notes == ()
    a = table.series[0]
    assert a.name == "a" and a.times.tolist() == [0, 0.5]
    assert a.features.tolist() == [[1, 3], [4, 6]] and a.targets.tolist() == [[2], [5]]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_byte_order_marks_and_blank_lines_are_read(csv, separator: str) -> None:
    text = "\ufeff" + (HEADER + "a,0,1,2,3\n\na,1,1,2,3\n").replace(",", separator)
    table = read_table(csv(text), ["y"])
    assert len(table.series[0].times) == 2 and table.notes == ("1 empty lines left out",)


def test_dates_count_in_seconds(csv) -> None:
    text = HEADER + "a,2024-05-01T12:00:00,1,2,3\na,2024-05-01T12:01:30+00:00,1,2,3\n"
    assert np.diff(read_table(csv(text), ["y"]).series[0].times).tolist() == [90]


def test_rows_out_of_order_are_sorted_and_said_so(csv) -> None:
    table = read_table(csv(HEADER + "a,2,30,0,0\na,0,10,0,0\na,1,20,0,0\n"), ["y"])
    assert table.series[0].times.tolist() == [0, 1, 2] and table.series[0].features[:, 0].tolist() == [10, 20, 30]
    assert len(table.notes) == 1 and "'a'" in table.notes[0] and "sorted" in table.notes[0]


def test_of_two_rows_at_one_time_the_last_in_the_file_stays(csv) -> None:
    table = read_table(csv(HEADER + "a,1,5,0,0\na,0,1,0,0\na,1,6,0,0\n"), ["y"])
    assert table.series[0].times.tolist() == [0, 1] and table.series[0].features[:, 0].tolist() == [1, 6]
    assert any("1 rows at the time of another" in note for note in table.notes)


def test_missing_values_are_nan_and_single_rows_are_left_out(csv) -> None:
    table = read_table(csv(HEADER + "a,0,,nan,NA\na,1,inf,2,3\nb,0,1,2,3\n"), ["y"])
    assert len(table.series) == 1 and np.isnan(table.series[0].features).tolist() == [[True, True], [True, False]]
    assert table.notes == ("1 series of a single row left out",)


@pytest.mark.parametrize(
    "text, targets, message",
    [
        (HEADER + "a,0,1,2,3\na,1,oops,2,3\n", ["y"], r"line 3, column 'x': 'oops' is not a number"),
        (HEADER + "a,soon,1,2,3\n", ["y"], r"line 2: time 'soon' is neither a number nor an ISO 8601 date"),
        (HEADER + "a,nan,1,2,3\n", ["y"], r"line 2: time 'nan' is not finite"),
        (HEADER + "a,0,1,2\n", ["y"], r"line 2: 4 cells, but the header has 5"),
        (HEADER + "a,0,1,2,3\n", ["speed"], r"no column 'speed'; choose data.targets from x, z, y"),
        (HEADER + "a,0,1,2,3\n", [], r"data.targets is empty; choose data.targets from x, z, y"),
        (HEADER + "a,0,1,2,3\n", ["x", "y", "z"], r"at least one must be left as a feature"),
        (HEADER + "a,0,1,2,3\n", ["y"], r"no series with at least two rows"),
        ("id,t,x,x\na,0,1,2\n", ["x"], r"two columns have the same name: 'x'"),
        ("id,t\n", ["y"], r"the header needs"),
        ("", ["y"], r"the header needs"),
        (HEADER + "a,0,1,2,3\n", ["y", "y"], r"data.targets names a column twice"),
        (HEADER + "a,0,9.97e36,2,3\n", ["y"], r"line 2, column 'x': '9.97e36' is too large"),
        (HEADER + "a,1e99,1,2,3\n", ["y"], r"line 2: time '1e99' is not finite, or too large"),
        (
            HEADER + "a,0,1,2,3\na,2024-05-01,1,2,3\n",
            ["y"],
            r"line 3: time '2024-05-01' is a date, those above are not",
        ),
        (HEADER + 'a,0,1,2,3\na,1,"1,2,3\na,2,1,2,3\n', ["y"], r"line 3: 3 cells"),
        (SPLIT + "a,0,later,1,2\n", ["y"], r"line 2: split = 'later': must be one of train"),
        (SPLIT + "a,0,train,1,2\na,1,test,1,2\n", ["y"], r"series 'a' is in two splits"),
    ],
)
def test_what_cannot_be_mended_is_refused_in_one_line(csv, text: str, targets: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        read_table(csv(text), targets)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UserError, match="nowhere.csv.*no such file"):
        build(SeriesData(path="nowhere.csv", targets=("y",)))


def test_series_are_cut_at_gaps_and_at_the_longest_length(csv) -> None:
    rows = "".join(f"a,{t},{t},0,0\n" for t in (0, 1, 2, 3, 4, 100, 101, 300))
    series = read_table(csv(HEADER + rows), ["y"]).series[0]
    assert [p.times.tolist() for p in pieces(series, max_gap=50, max_length=0)] == [[0, 1, 2, 3, 4], [100, 101]]
    assert [len(p.times) for p in pieces(series, max_gap=50, max_length=3)] == [3, 2, 2]
    assert [len(p.times) for p in pieces(series, max_gap=0, max_length=0)] == [8]


def split_rows() -> str:
    rows = [
        "a,0,train,1,10",
        "a,2,train,3,30",
        "a,6,train,,20",
        "b,0,validation,2,20",
        "b,2,validation,2,",
        "c,0,test,,20",
        "c,100,test,5,40",
    ]
    return SPLIT + "\n".join(rows) + "\n"


def test_examples_are_scaled_by_the_training_series_alone(csv, capsys) -> None:
    splits = build(SeriesData(path=csv(split_rows()), targets=("y",)))
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [1, 1, 1]
    assert splits.n_inputs == 2 and splits.n_outputs == 1
    a, c = splits.train[0], splits.test[0]
    # Features of a: 1, 3, missing: mean 2, std 1; intervals 2, 4: median 3; targets: mean 20, std sqrt(200/3).
    np.testing.assert_allclose(a.x, [[-1, 1], [1, 1], [1, 0]])
    np.testing.assert_allclose(a.dt, [1, 2 / 3, 4 / 3])
    np.testing.assert_allclose(a.y[:, 0], np.array([-10, 10, 0]) / np.sqrt(200 / 3), rtol=1e-6)
    np.testing.assert_allclose(c.x, [[0, 0], [3, 1]])  # nothing seen yet: the mean
    assert torch.isnan(splits.validation[0].y).tolist() == [[False], [True]]
    notes = " | ".join(splits.report["notes"])
    assert capsys.readouterr().err.count("note: ") == len(splits.report["notes"])
    assert "2 missing values among the features" in notes and "1 missing values among the targets" in notes
    assert "1 pieces with a gap above 20 median intervals, the longest 100 in series 'c'" in notes
    json.dumps(splits.report, allow_nan=False)


def test_scaling_goes_into_the_config_and_is_used_again(csv) -> None:
    path = csv(split_rows())
    known = build(SeriesData(path=path, targets=("y",))).data
    assert known.scaling.features == ("x",) and known.scaling.time_unit == 3
    run = RunConfig(data=known)
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(run)))) == run
    csv(split_rows().replace("a,2,train,3,30", "a,2,train,9,90"))
    assert build(known).data.scaling == known.scaling
    csv(split_rows().replace("split,x,y", "split,w,y"))
    with pytest.raises(UserError, match="the features are w; this model was trained on x"):
        build(known)


def test_a_column_without_any_value_is_refused(csv) -> None:
    text = split_rows().replace(",1,10", ",,10").replace(",3,30", ",,30")
    with pytest.raises(UserError, match="column 'x' has no value in any training series"):
        build(SeriesData(path=csv(text), targets=("y",)))


def test_series_are_split_by_name_not_by_place(csv) -> None:
    names = [f"s{i}" for i in range(40)]
    rows = [f"{name},{t},1,{t},2\n" for name in names for t in (0, 1)]

    def members(lines: list[str]) -> list[set[str]]:
        splits = build(SeriesData(path=csv(HEADER + "".join(lines)), targets=("y",)))
        return [{s.name for s in part.series} for part in (splits.train, splits.validation, splits.test)]

    first = members(rows)
    assert [len(part) for part in first] == [32, 4, 4] and first == members(rows[::-1])
    assert set.union(*first) == set(names)
    with pytest.raises(UserError, match="at least three are needed"):
        members(rows[:4])


def test_the_example_is_ready_to_use(tmp_path) -> None:
    splits = build(SeriesData(cache=str(tmp_path)))
    assert len(splits.train) == 64 and splits.n_outputs == 2 and splits.data.targets == series_example.TARGETS
    batch = collate([splits.train[i] for i in range(3)])
    assert batch.x.shape == (3, 40, 2) and batch.dt.shape == (3, 40) and not batch.x.isnan().any()
    assert splits.train[0].dt.median() == pytest.approx(1, abs=0.5)


def test_the_example_can_be_written_out(tmp_path, capsys) -> None:
    assert series_example.main([str(tmp_path / "springs.csv")]) == 0
    assert "80 series" in capsys.readouterr().out
    assert len(read_table(tmp_path / "springs.csv", series_example.TARGETS).series) == 80


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=1, max_size=6), max_size=8), st.sampled_from([",", ";", "\t"]))
def test_tables_of_any_cells_are_read_in_order_or_refused_in_one_line(rows: list[list[str]], separator: str) -> None:
    lines = [separator.join(["id", "t", "x", "y"])] + [separator.join(row) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.csv"
        path.write_text("\n".join(lines), encoding="utf-8")
        try:
            table = read_table(path, ["y"])
        except UserError as error:
            assert "\n" not in str(error)
            return
    for series in table.series:
        assert np.isfinite(series.times).all()
        assert (np.diff(series.times) > 0).all()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_files_of_any_bytes_are_read_or_refused_in_one_line(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.csv"
        path.write_bytes(content)
        with pytest.raises(UserError) as error:
            read_table(path, ["y"])
        assert "\n" not in str(error.value)


def test_a_constant_feature_is_not_scaled_by_its_rounding(csv) -> None:
    """Seven times 0.1 deviate by 1e-17 from their mean; another value at test time must stay a number of order one."""
    rows = [
        f"{name},{t},{split},{x},1\n"
        for name, split, x in (("a", "train", 0.1), ("b", "validation", 0.1), ("c", "test", 0.3))
        for t in range(7)
    ]
    splits = build(SeriesData(path=csv(SPLIT + "".join(rows)), targets=("y",)))
    assert splits.data.scaling.feature_std == (1.0,)
    assert splits.test[0].x.abs().max() <= 1


def test_a_set_without_any_target_is_refused(csv) -> None:
    text = split_rows().replace("validation,2,20", "validation,2,")
    with pytest.raises(UserError, match="y: no value in the validation set"):
        build(SeriesData(path=csv(text), targets=("y",)))


def test_an_interval_beyond_all_measure_is_refused(csv) -> None:
    with pytest.raises(UserError, match=r"series 'c': an interval of 1e\+20 is longer"):
        build(SeriesData(path=csv(split_rows().replace("c,100", "c,1e20")), targets=("y",)))


def test_rows_that_cutting_leaves_alone_are_counted(csv) -> None:
    rows = "".join(f"{name},{t},1,2,3\n" for name in "abc" for t in range(5))
    notes = build(SeriesData(path=csv(HEADER + rows), targets=("y",), max_length=2)).report["notes"]
    assert any(note.startswith("3 rows left out") for note in notes)


def test_what_is_no_file_is_told(tmp_path) -> None:
    with pytest.raises(UserError, match="is not a file; name a CSV file"):
        read_table(tmp_path, ["y"])
    with pytest.raises(UserError, match="no such file"):
        read_table("x" * 5000, ["y"])
