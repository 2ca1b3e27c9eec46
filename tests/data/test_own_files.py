"""Own data by path: tables with named columns, folders of images, and what is refused."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image

from entropy_mcmc.data import from_columns, load
from entropy_mcmc.data.held_out import held_out
from entropy_mcmc.data.own_files import read_table
from entropy_mcmc.errors import ConfigError, DamagedFileError, MissingFileError
from entropy_mcmc.file_names import is_file_name, is_function_name, short_name

ROWS = 40


def table(rows=ROWS):
    rng = np.random.default_rng(0)
    return {
        "size": rng.normal(50, 10, rows).round(3),
        "town": np.array(["Ulm", "Bonn", 'Bad "X", am See', "Ulm"])[np.arange(rows) % 4],
        "rooms": rng.integers(1, 5, rows),
        "price": rng.normal(3, 1, rows).round(3),
    }


def write_csv(file, columns):
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return file


def naive(columns, rows):
    """The inputs of `table`, cell by cell."""
    towns = sorted(set(columns["town"]))
    return [
        [
            columns["size"][row],
            *(columns["town"][row] == town for town in towns),
            columns["rooms"][row],
        ]
        for row in rows
    ]


def test_a_csv_is_split_encoded_and_scaled_by_its_training_rows(tmp_path):
    columns = table()
    file = write_csv(tmp_path / "houses.csv", columns)
    train, test = load(str(file)), load(str(file), split="test")
    held = held_out(ROWS, 0.2, 0)
    assert (len(train), len(test)) == (32, 8)
    for part, rows in ((train, np.flatnonzero(~held)), (test, np.flatnonzero(held))):
        np.testing.assert_array_equal(part.inputs, np.array(naive(columns, rows), np.float32))
        np.testing.assert_array_equal(part.targets, columns["price"][rows].astype(np.float32))
        assert part.mean == pytest.approx(np.array(naive(columns, np.flatnonzero(~held))).mean(0))
        assert part.target_mean == pytest.approx(columns["price"][~held].mean(), rel=1e-5)
    assert (train.task, train.classes, train.class_names) == ("regression", None, ())
    other = load(str(file), split="test", index=1)
    assert not torch.equal(other.targets, test.targets)


def test_classes_by_name_by_number_and_by_word(tmp_path):
    file = write_csv(tmp_path / "t.csv", table())
    towns = load(str(file), target="town")
    assert towns.class_names == ('Bad "X", am See', "Bonn", "Ulm")
    assert towns.inputs.shape[1] == 3
    rooms = load(str(file), target="rooms", inputs=["size"])
    assert (rooms.task, rooms.class_names) == ("classification", ("1", "2", "3", "4"))
    assert rooms.targets.max() == 3
    assert load(str(file), target="rooms", task="regression").task == "regression"
    with pytest.raises(ConfigError, match=r"text or whole numbers, got price="):
        load(str(file), task="classification")


def test_a_test_file_takes_the_encoding_of_the_training_file(tmp_path):
    columns = table()
    file = write_csv(tmp_path / "train.csv", columns)
    few = {name: column[:3][::-1] for name, column in columns.items()}
    write_csv(tmp_path / "test.csv", few)
    train = load(str(file), test="test.csv")
    test = load(str(file), test="test.csv", split="test")
    assert len(train) == ROWS
    np.testing.assert_array_equal(test.inputs, train.inputs[:3].flip(0))
    few["town"] = np.array(["Ulm", "Rome", "Ulm"])
    write_csv(tmp_path / "test.csv", few)
    with pytest.raises(ConfigError, match=r"test\.csv has 'Rome' in column 'town', row 2"):
        load(str(file), test="test.csv", split="test")


@pytest.mark.parametrize(
    ("text", "words", "options"),
    [
        ("a,b\n1,2\n3\n", r"2 columns and 1 cells in line 3", {}),
        ("a;b\n1;2\n3;4\n", r"by commas, got the header 'a;b'; convert it", {}),
        ("1,2\n3,4\n", r"first line .* must name the columns", {}),
        ("a,a\n1,2\n", r"a name for each column, once", {}),
        ("a,b\n", r"a header line and rows", {}),
        ("a,b\n1,2\n,4\n5,6\n7,8\n9,1\n", r"column 'a' has 1 missing .* first in row 2", {}),
        ("a,b\nx,2\n,4\ny,6\nz,8\n", r"column 'a' has 1 missing .* first in row 2", {}),
        (
            "a,b\n1,2\n3,4\n",
            r"no column 'B' \(did you mean 'b'\?\); it has a, b",
            {"target": "B"},
        ),
        ("a,b\n1,2\n3,4\n", r"at least one input column", {"inputs": ["b"]}),
        ("a,b\n1,2\n3,4\n", r"test=0.01 of 2 rows", {"test": 0.01}),
        ("a,b\n1,2\n3,4\n", r"greater than 0 and less than 1", {"test": 2}),
        ("a,b\n" + "".join(f"w{i},{i}\n" for i in range(99)), r"99 different texts", {}),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, text, words, options):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load(str(tmp_path / "t.csv"), **options)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(DamagedFileError, match=r"t\.csv is no CSV file in UTF-8"):
        load(str(tmp_path / "t.csv"))


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(MissingFileError, match=r"gone\.csv is not there"):
        load(str(tmp_path / "gone.csv"))
    (tmp_path / "t.txt").write_text("a")
    with pytest.raises(ConfigError, match=r"must end in \.npz, \.csv or \.parquet"):
        load(str(tmp_path / "t.txt"))
    with pytest.raises(ConfigError, match=r"did you mean 'digits'\?.*such as \./digit"):
        load("digit")


def test_parquet_gives_what_csv_gives(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pip install 'entropy-mcmc[parquet]'")
    from pyarrow import parquet

    columns = table()
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    write_csv(tmp_path / "t.csv", columns)
    for target in ("price", "town", "rooms"):
        one = load(str(tmp_path / "t.parquet"), target=target)
        other = load(str(tmp_path / "t.csv"), target=target)
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)
        assert (one.class_names, one.mean) == (other.class_names, other.mean)
    missing = arrow.table({"a": [1.0, None], "b": [1.0, 2.5]})
    parquet.write_table(missing, tmp_path / "m.parquet")
    with pytest.raises(ConfigError, match="column 'a' has 1 missing"):
        load(str(tmp_path / "m.parquet"), test="m.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(DamagedFileError, match="no Parquet file"):
        read_table(tmp_path / "bad.parquet")


def write_images(folder, parts=("train", "test"), mode="RGB", classes=("cat", "dog"), count=3):
    rng = np.random.default_rng(1)
    pictures = {}
    for part in parts:
        for name in classes:
            place = folder / part / name
            place.mkdir(parents=True)
            for number in range(count):
                shape = (8, 8, 3) if mode == "RGB" else (8, 8)
                pixels = rng.integers(0, 256, shape, dtype=np.uint8)
                Image.fromarray(pixels, mode).save(place / f"{number}.png")
                pictures[part, name, number] = pixels
    return pictures


@pytest.mark.filterwarnings("ignore::DeprecationWarning:PIL")
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_folder_of_images(tmp_path, mode):
    pictures = write_images(tmp_path, mode=mode)
    train = load(f"{tmp_path}/", side=8)
    test = load(f"{tmp_path}/", split="test", side=8)
    assert (train.class_names, train.classes) == (("cat", "dog"), 2)
    assert train.targets.tolist() == [0, 0, 0, 1, 1, 1]
    first = pictures["test", "dog", 0]
    expected = first.transpose(2, 0, 1) if mode == "RGB" else first[None]
    np.testing.assert_array_equal(test.inputs[3], expected)
    assert (
        test.mean
        == train.mean
        == pytest.approx((train.inputs.double() / 255).mean(dim=(0, 2, 3)).tolist(), rel=1e-6)
    )
    assert load(f"{tmp_path}/").inputs.shape[-2:] == (32, 32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:PIL")
def test_class_folders_alone_are_split(tmp_path):
    write_images(tmp_path / "all", parts=(".",), count=10)
    train, test = (load(str(tmp_path / "all"), split=s, side=4) for s in ("train", "test"))
    assert (len(train), len(test)) == (16, 4)
    with pytest.raises(ConfigError, match="subfolder test"):
        load(str(tmp_path / "all"), test="other")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:PIL")
def test_wrong_folders_of_images(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingFileError, match=r"holds no images: put them into .*CLASS"):
        load(str(tmp_path / "empty"))
    write_images(tmp_path / "one", classes=("cat",))
    with pytest.raises(ConfigError, match="two or more classes"):
        load(str(tmp_path / "one"))
    write_images(tmp_path / "half", parts=("train",))
    with pytest.raises(MissingFileError, match=r"has train/ and no test/"):
        load(str(tmp_path / "half"))
    write_images(tmp_path / "broken")
    (tmp_path / "broken/train/cat/0.png").write_bytes(b"no image")
    with pytest.raises(DamagedFileError, match=r"0\.png is damaged.*take it out of the folder"):
        load(str(tmp_path / "broken"))
    with pytest.raises(ConfigError, match=r"need more than 2 GiB.*stream them"):
        load(str(tmp_path / "broken"), side=30_000)


class HubSet:
    """The interface of a Hugging Face `datasets.Dataset` that is used."""

    def __init__(self, columns, names=None):
        self.columns_, self.column_names = columns, list(columns)
        self.features = {c: type("ClassLabel", (), {"names": names})() for c in columns}

    def __getitem__(self, name):
        return self.columns_[name]


def test_columns_of_any_holder_of_columns():
    columns = table(12)
    as_dict = from_columns(columns, "price")
    as_lists = from_columns({name: list(column) for name, column in columns.items()}, "price")
    as_hub = from_columns(HubSet({n: list(c) for n, c in columns.items()}), "price")
    for other in (as_lists, as_hub):
        assert torch.equal(as_dict.inputs, other.inputs)
        assert torch.equal(as_dict.targets, other.targets)
    pandas = pytest.importorskip("pandas")
    frame = from_columns(pandas.DataFrame(columns), "price")
    assert torch.equal(frame.inputs, as_dict.inputs)
    test = from_columns({n: c[:2] for n, c in columns.items()}, like=as_dict)
    assert torch.equal(test.inputs, as_dict.inputs[:2])
    assert test.mean == as_dict.mean


@pytest.mark.filterwarnings("ignore::DeprecationWarning:PIL")
def test_images_and_labels_of_a_hub_set():
    pixels = np.random.default_rng(2).integers(0, 256, (4, 8, 6, 3), dtype=np.uint8)
    hub = HubSet({"image": [Image.fromarray(p) for p in pixels], "label": [30, 0, 2, 1]}, range(40))
    data = from_columns(hub, "label", ["image"])
    np.testing.assert_array_equal(data.inputs, pixels.transpose(0, 3, 1, 2))
    assert (data.classes, data.targets.tolist()) == (40, [30, 0, 2, 1])
    again = from_columns(hub, like=data)
    assert torch.equal(again.inputs, data.inputs)
    named = HubSet({"size": [1.0, 2.0, 3.0], "kind": [1, 0, 1]}, ("rose", "iris"))
    flowers = from_columns(named, "kind")
    assert (flowers.class_names, flowers.targets.tolist()) == (("rose", "iris"), [1, 0, 1])
    few = HubSet({"size": [4.0], "kind": [0]}, ("rose", "iris"))
    assert from_columns(few, like=flowers).targets.tolist() == [0]
    assert from_columns(named, "kind", task="regression").class_names == ()
    mixed = {"image": [pixels[0], pixels[1][:4]], "label": ["a", "b"]}
    with pytest.raises(ConfigError, match="images of one size"):
        from_columns(mixed, "label")


def test_names_of_files_and_of_functions():
    assert [is_file_name(n) for n in ("a.csv", "A.PARQUET", "./x", "mine:load", "digits")] == [
        *(True, True, True, False, False)
    ]
    assert is_function_name("mine:load")
    assert not is_function_name("C:\\data\\a.npz")  # no code is imported for a path
    assert short_name("C:\\data\\my table.npz") == "my_table"
    assert short_name("../..") == "data"


def test_a_data_set_is_shown_in_one_line():
    shown = repr(from_columns({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]}))
    assert shown == "Dataset('columns', 3 rows of 1, 2 classes)"


def test_labels_from_one_are_remarked(tmp_path):
    x, y = np.zeros((4, 2), np.float32), np.array([1, 2, 1, 2])
    np.savez(tmp_path / "one.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.warns(UserWarning, match="counted from 1, subtract 1"):
        assert load(str(tmp_path / "one.npz")).classes == 3
