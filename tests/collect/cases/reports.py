"""Public reports of people who lost, or nearly lost, values in a column: what each taught, as an input and its answer.

The inputs are made anew from what the reports describe; an answer is the list of values, or the words of the refusal.
"""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Content = bytes | Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One report.

    Arguments:
        report: where it was told.
        taught: the sentence that it taught.
        name: of the file; a folder may stand before it.
        content: its bytes, or what writes it.
        column: to privatize; "x" by default.
        kept: to compare instead of codes; None compares the codes.
        categories: of the table; None for integer parts of numbers from 0 to 8.
        answer: the values or codes, or the words of the refusal.
    """

    report: str
    taught: str
    name: str
    content: Content
    answer: list[Any] | str
    column: str = "x"
    kept: str | None = None
    categories: tuple[Any, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def zstd(data: bytes, cut: int = 0) -> bytes:
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed[: len(packed) - cut]


def damaged_page(path: Path) -> None:
    table = pa.table({"x": pa.array(range(8)).cast(pa.float64())})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[90] ^= 0x40  # of a value: the statistics of the page lie before it
    path.write_bytes(bytes(data))


def parquet(**columns: Any) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.table(columns), path)


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def two_scales(path: Path) -> None:
    files = (("a", pa.decimal128(3, 2), "1.25"), ("b", pa.decimal128(9, 4), "7.5000"))
    for name, kind, value in files:
        table = pa.table({"x": pa.array([decimal.Decimal(value)], kind)})
        pq.write_table(table, path.with_name(f"{name}.parquet"))


def decimals_as_integers(path: Path) -> None:
    values = [decimal.Decimal("1.25"), decimal.Decimal("7.50"), None]
    table = pa.table({"x": pa.array(values, pa.decimal128(9, 2))})
    pq.write_table(table, path, store_decimal_as_integer=True)


def instants(*spelled: str) -> pa.Array:
    times = [datetime.datetime.fromisoformat(each) for each in spelled]
    return pa.array(times, pa.timestamp("s", "UTC"))


CASES = (
    Case(report="apple/turicreate#1692", taught="a quote that never closes takes every later row with it",
         name="a.csv", content=b'x,b\n1,"b"\n2,"d\n3,"e"\n4,f\n', answer=r"data row 2 .*text follows"),
    Case(report="tidyverse/vroom#484", taught="a file may be cut to no row at all, and called valid",
         name="a.csv", content=b'x,B,C,D\n1,bar,"ba\n2,bat\n1,2,3,4\n', answer="data row 1 never closes"),
    Case(report="osiegmar/FastCSV#173", taught="parsers close a quote at the end of the file by themselves",
         name="a.csv", content=b'x,b\n"1,val2\n3,val4\n', answer="data row 1 never closes"),
    Case(report="cldf/csvw#52", taught="a typographic quote closes nothing",
         name="a.csv", content='x,b\n1,"an unclosed comment”\n2,text\n'.encode(), answer="data row 1 never"),
    Case(report="halogenandtoast/excelsior#8", taught="the last field of the last row may be the open one",
         name="a.csv", content=b'x,b\n1,Foo\n2,"Baz', answer="data row 2 never closes"),
    Case(report="NVIDIA/cudf#2398", taught="a quote inside an unquoted field is a character",
         name="a.csv", content=b'x,b,c\n1,/abc,200\n3,/images",500\n4,/abc,200\n5,rapids.ai,200\n',
         answer=[1, 3, 4, 5]),
    Case(report="osiegmar/FastCSV#20", taught="a quoted empty field at the end of a row is a field",
         name="a.csv", content=b'x,b\n1,""\n"2",""\n', kept="b", answer=["", ""]),
    Case(report="python/cpython#97611", taught="spaces in the cells do not make a space the delimiter",
         name="a.txt.csv", content=b'x\tname\n1\t"a b c"\n2\t"d e f"\n', answer=[1, 2]),
    Case(report="python/cpython#119123", taught="commas in the cells do not make the comma the delimiter",
         name="a.csv", content=b"x;b;group\n4;46.50;['112', '112']\n5;237.00;['468']\n", answer=[4, 5]),
    Case(report="duckdb/duckdb#14115", taught="the bar is a delimiter", name="a.csv",
         content=b"FlightDate|UniqueCarrier|x\n1988-01-01|AA|3\n1988-01-02|AA, Inc|4\n", answer=[3, 4]),
    Case(report="dathere/datapusher-plus#256", taught="so is the semicolon", name="a.csv",
         content=b"date;x;place\n2011-01-01;1;Galway\n2011-01-02;0;Galway\n", answer=[1, 0]),
    Case(report="bis-med-it/pysdmx#460", taught="bars inside a header of commas are text", name="a.csv",
         content=b"STRUCTURE,x,A|B|C name\ndataflow,2,q\n", answer="--delimiter"),
    Case(report="bis-med-it/pysdmx#460 (named)", taught="an ambiguous header is read when its delimiter is named",
         name="a.csv", content=b"STRUCTURE,x,A|B|C name\ndataflow,2,q\n", answer=[2], options={"delimiter": ","}),
    Case(report="Lychee-Technology/forma#347", taught="a flipped byte in a page decodes into other values, silently",
         name="a.parquet", content=damaged_page, answer=r"a\.parquet: columns x: damaged or cut .*page integrity"),
    Case(report="ClickHouse/ClickHouse#120634", taught="text stays text behind any number of numbers", name="a.jsonl",
         content=lines(*[{"x": 1, "a": 1}] * 9, {"x": 1, "a": "007"}, {"x": 1, "a": ""}), kept="a",
         answer=["1"] * 9 + ["007", ""]),
    Case(report="wireservice/csvkit#607", taught="an identifier that looks like a time is text", name="a.jsonl",
         content=lines({"x": 1, "id": "20160506175330-3168-01"}, {"x": 2, "id": "2016-05-06T17:53:30+02:00"}),
         kept="id", answer=["20160506175330-3168-01", "2016-05-06T17:53:30+02:00"]),
    Case(report="ClickHouse/ClickHouse#63420", taught="a dash among times is text, not an error", name="a.jsonl",
         content=lines({"x": 1, "t": "2026-10-05"}, {"x": 2, "t": "-"}), kept="t", answer=["2026-10-05", "-"]),
    Case(report="prestodb/presto#2233", taught="a folder day=06 is not day 6", name="day=06/a.csv",
         content=b"x\n1\n2\n", kept="day", answer=["06", "06"]),
    Case(report="apache/arrow#39660", taught="leading zeros of folders are kept", name="zip=01234/a.parquet",
         content=parquet(x=[1.0]), kept="zip", answer=["01234"]),
    Case(report="jrothbaum/stata_parquet_io#29", taught="fips=1 is not true", name="fips=1/a.parquet",
         content=parquet(x=[1.0]), kept="fips", answer=["1"]),
    Case(report="wireservice/csvkit#806", taught="NA is Namibia where the table lists it", name="a.csv",
         content=b'x\nNA\n"NA"\nDE\n', categories=("DE", "NA"), answer=[1, 1, 0]),
    Case(report="datasets/country-codes#38", taught="and missing where it does not", name="a.csv",
         content=b"x,name\nEU,a\nNA,b\nAS,c\n", categories=("AS", "EU"), answer=[1, None, 0]),
    Case(report="calpaterson/csvbase#11", taught="1.0 names the integer 1", name="a.csv", content=b"x\n1.0\n2\n 1\n",
         categories=(1, 2), answer=[0, 1, 0]),
    Case(report="calpaterson/csvbase#11 (1.000001)", taught="1.000001 does not", name="a.csv",
         content=b"x\n1.0\n1.000001\n", categories=(1, 2), answer="data row 2 holds a value that is no category"),
    Case(report="pandas-dev/pandas#20717", taught="an empty cell turns integers into floats, not into others",
         name="a.parquet", content=parquet(x=pa.array([1.0, None, 2.0])), categories=(1, 2), answer=[0, None, 1]),
    Case(report="pandas-dev/pandas#16698", taught="a missing boolean is missing, not true", name="a.csv",
         content=b"x,c2\nfalse,1\n,1\nTrue,1\n", categories=(True, False), answer=[1, None, 0]),
    Case(report="duckdb/duckdb#780", taught="apostrophes in a packed file of tabs are text", name="a.tsv.gz",
         content=gzip.compress(b"x\tb\n" + b"".join(b"%d\tit's %d\n" % (i % 8, i) for i in range(999))),
         answer=[i % 8 for i in range(999)]),
    Case(report="pingcap/tidb#68064", taught="a cut zstd frame reads as an empty file", name="a.csv.zst",
         content=zstd(b"x,b,c\n1,2,3\n4,5,6\n", cut=4), answer=r"a\.csv\.zst"),
    Case(report="apache/arrow-rs#4173", taught="a gzip of several members may end one within a line", name="a.csv.gz",
         content=gzip.compress(b"x,b\n1,a\n2,") + gzip.compress(b"b\n3,c\n"), answer=[1, 2, 3]),
    Case(report="johnkerl/miller#1102", taught="an empty line of one column does not end the file", name="a.csv",
         content=b"x\n1\n2\n\n4\n5\n", answer=[1, 2, None, 4, 5]),
    Case(report="tidyverse/readr#1160", taught="an empty file that is packed is an empty file", name="a.csv.gz",
         content=gzip.compress(b""), answer="is empty"),
    Case(report="adaltas/node-csv-parse#284", taught="a byte order mark is no part of the first name", name="a.csv",
         content=b"\xef\xbb\xbfx\r\n1\r\n3\r\n", answer=[1, 3]),
    Case(report="FasterXML/jackson-dataformat-csv#47", taught="nor of its quotes", name="a.csv",
         content=b'\xef\xbb\xbf"x","Name"\n1,a\n', answer=[1]),
    Case(report="pandas-dev/pandas#9424", taught="a name that stands twice names nothing", name="a.csv",
         content=b"x,x\n1,2\n", answer="more than once"),
    Case(report="pola-rs/polars#28310", taught="names that a reader invents collide with real ones", name="a.csv",
         content=b"a,a_duplicated_0,a\n1,2,3\n", column="a_duplicated_0", answer=[2]),
    Case(report="NVIDIA/cudf#8645", taught="so do numbered ones", name="a.csv", content=b"A,A,A.1,A,A.2\n1,2,3,4,5\n",
         column="A.1", answer=[3]),
    Case(report="apache/arrow#36110", taught="summer time does not end in 2038", name="a.parquet",
         content=parquet(t=instants("2058-07-27T00:00:00+00:00", "2058-12-27T00:00:00+00:00")),
         column="t:hour@Europe/London", answer=[1, 0]),
    Case(report="pandas-dev/pandas#33061", taught="nor in New York", name="a.parquet",
         content=parquet(t=instants("2039-07-01T05:00:00+00:00", "2039-12-01T05:00:00+00:00")),
         column="t:hour@America/New_York", answer=[1, 0]),
    Case(report="bytedance/bolt#965", taught="before 1883 clocks showed local mean time", name="a.parquet",
         content=parquet(t=instants("1880-01-01T12:00:00+00:00")), column="t:hour@America/Los_Angeles", answer=[4]),
    Case(report="man-group/dtale#239", taught="people spell missing in many ways, each told by its row", name="a.csv",
         content=b"x,b\n1,a\n...,b\n", answer="data row 2 holds text, not a number"),
    Case(report="man-group/dtale#239 (named)", taught="and each named once", name="a.csv",
         content=b"x,b\n1,a\n...,b\nnan,c\n2,d\n", answer=[1, None, None, 2],
         options={"missing_values": ["...", "nan"]}),
    Case(report="pymovements/pymovements#746", taught="missing values first do not make a column text", name="a.csv",
         content=b"x,b\n" + b",a\n" * 200 + b"3,b\n", answer=[None] * 200 + [3]),
    Case(report="dask/dask#2098", taught="nor integers first a column of integers", name="a.csv",
         content=b"x,b\n" + b"1,a\n" * 1000 + b"1.5,b\n", answer=[1] * 1001),
    Case(report="apache/texera#6279", taught="a word behind 400 numbers does not take its row with it", name="a.csv",
         content=b"x,b\n" + b"1,a\n" * 400 + b"twelve,b\n2,c\n", answer="data row 401 holds text"),
    Case(report="apache/texera#6279 (lines)", taught="nor in lines of JSON", name="a.jsonl",
         content=lines(*[{"x": 1}] * 400, {"x": "twelve"}, {"x": 2}), answer="data row 401 holds text"),
    Case(report="turi-code/SFrame#23", taught="9a is not 9", name="a.csv",
         content=b"x,B\n" + b"0,1\n" * 1000 + b"9a,1\n", answer="data row 1001 holds text"),
    Case(report="pandas-dev/pandas#12519", taught="a first row with a field too many has no index", name="a.csv",
         content=b"x,b\n5,7,Invalid\n4,Row\n8,Does\n", answer="data row 1 .*another number of fields"),
    Case(report="pandas-dev/pandas#22374", taught="a first row with a field too few is no row of one", name="a.csv",
         content=b"x,b,c\n1,\n2, 1.23, 4.56\n", answer="data row 1 .*another number of fields"),
    Case(report="vincentlaucsb/csv-parser#71", taught="a comma at the end of every row but the header is a field",
         name="a.csv", content=b"x,b,c\n4,-4.00,,\n5,210424.25,,\n", answer="data row 1 .*another number of fields"),
    Case(report="GeneralMills/pytrends#12", taught="a comma between thousands is a delimiter", name="a.csv",
         content=b"b,x\negg,+800%\nyolk,+1,650%\n", answer="data row 2 .*another number of fields"),
    Case(report="rawgraphs/rawgraphs-app#247", taught="and in quotes not to be taken for a decimal point", name="a.csv",
         content=b'x,b\n10.44,a\n"2,923",b\n', answer="data row 2 holds a number with a comma; .*thousands, take them"),
    Case(report="deadlocker8/BudgetMaster#731", taught="1.355,90 is not 1.35", name="a.csv",
         content="x;b\n1.355,90\u20ac;a\n2,5;b\n".encode(), answer="data row 1 holds text", options={"decimal": ","}),
    Case(report="deadlocker8/BudgetMaster#731 (a point)", taught="where commas are decimal points, points are not",
         name="a.csv", content=b"x;b\n2,5;b\n1.355;a\n", answer="data row 2 holds text", options={"decimal": ","}),
    Case(report="tidyverse/readr#976", taught="integers beyond 2**53 are kept as they are spelled", name="a.csv",
         content=b"x,id\n1,11898508762506083287\n2,3266119658877827603\n", kept="id",
         answer=["11898508762506083287", "3266119658877827603"]),
    Case(report="pandas-dev/pandas#48170", taught="also beside empty cells", name="a.csv",
         content=b"x,id\n1,\n2,1234567890123456789\n", kept="id", answer=["", "1234567890123456789"]),
    Case(report="konklone/json#266", taught="and in JSON", name="a.jsonl",
         content=lines({"x": 1, "id": 10292320860000001}, {"x": 2, "id": 2**64 - 1}), kept="id",
         answer=["10292320860000001", "18446744073709551615"]),
    Case(report="pola-rs/polars#29330", taught="a key may be there for the first time in row 30001", name="a.jsonl",
         content=lines(*[{"a": 1}] * 30_000, {"a": 1, "x": 3}, {"x": 4}), answer=[None] * 30_000 + [3, 4]),
    Case(report="ClickHouse/ClickHouse#121472", taught="a null there is missing, not 0", name="a.jsonl",
         content=lines(*[{"x": 1}] * 30_000, {"x": None}, {"x": 2}), answer=[1] * 30_000 + [None, 2]),
    Case(report="duckdb/duckdb#8146", taught="decimals of files may have scales of their own", name="a.parquet",
         content=two_scales, answer=[1, 7]),
    Case(report="mjakubowski84/parquet4s#338", taught="a decimal stored as an integer has a scale", name="a.parquet",
         content=decimals_as_integers, answer=[1, 7, None]),
    Case(report="uniVocity/univocity-parsers#87", taught="UTF-16 is told by its first bytes", name="a.csv",
         content="x;b\r\n1;a\r\n".encode("utf-16"), answer="not UTF-8; convert the file"),
    Case(report="genspark-ai/genoffice#438", taught="without them by its zeros", name="a.csv",
         content="x,b\n1,a\n".encode("utf-16-le"), answer="NUL byte .*UTF-8"),
    Case(report="turicas/rows#273", taught="a NUL byte within a cell is no letter", name="a.csv",
         content=b"x,b\n1,a\x00b\n2\x00,c\n", answer="data row 1 .*NUL byte"),
)  # fmt: skip
