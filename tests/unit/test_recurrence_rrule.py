"""RRULE: the examples of RFC 5545, refusals, and our decisions. The oracles are in a file of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from rota.domain.recurrence import RRule, between, check, count, latest, next_after
from rota.domain.recurrence.zones import zone_tzinfo

NEW_YORK = "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local(text: str, zone: str = NEW_YORK) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone_tzinfo(zone)).astimezone(UTC)


def fires(rule: str, start: datetime, limit: int, zone: str = NEW_YORK) -> list[datetime]:
    return list(
        islice(between(RRule(rule, start, zone), start - timedelta(seconds=1), at("2100-01-01")), limit)
    )


def days(text: str) -> list[str]:
    """`1997-09: 2 4; 1997-10: 1` as ISO dates."""
    found: list[str] = []
    for month in text.split(";"):
        name, _, numbers = month.partition(":")
        found += [f"{name.strip()}-{int(number):02}" for number in numbers.split()]
    return found


# (rule, date of DTSTART at 09:00 in New York, whether the list is complete, dates at 09:00)
RFC_DATES = [
    ("FREQ=DAILY;COUNT=10", "1997-09-02", True, "1997-09: 2 3 4 5 6 7 8 9 10 11"),
    (
        "FREQ=DAILY;INTERVAL=2",
        "1997-09-02",
        False,
        "1997-09: 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30; 1997-10: 2",
    ),
    ("FREQ=DAILY;INTERVAL=10;COUNT=5", "1997-09-02", True, "1997-09: 2 12 22; 1997-10: 2 12"),
    ("FREQ=WEEKLY;COUNT=10", "1997-09-02", True, "1997-09: 2 9 16 23 30; 1997-10: 7 14 21 28; 1997-11: 4"),
    (
        "FREQ=WEEKLY;UNTIL=19971224T000000Z",
        "1997-09-02",
        True,
        "1997-09: 2 9 16 23 30; 1997-10: 7 14 21 28; 1997-11: 4 11 18 25; 1997-12: 2 9 16 23",
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;WKST=SU",
        "1997-09-02",
        False,
        "1997-09: 2 16 30; 1997-10: 14 28; 1997-11: 11 25; 1997-12: 9 23; 1998-01: 6 20; 1998-02: 3 17",
    ),
    (
        "FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH",
        "1997-09-02",
        True,
        "1997-09: 2 4 9 11 16 18 23 25 30; 1997-10: 2",
    ),
    (
        "FREQ=WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH",
        "1997-09-02",
        True,
        "1997-09: 2 4 9 11 16 18 23 25 30; 1997-10: 2",
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
        "1997-09-01",
        True,
        "1997-09: 1 3 5 15 17 19 29; 1997-10: 1 3 13 15 17 27 29 31; 1997-11: 10 12 14 24 26 28; 1997-12: 8 10 12 22",
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH",
        "1997-09-02",
        True,
        "1997-09: 2 4 16 18 30; 1997-10: 2 14 16",
    ),
    (
        "FREQ=MONTHLY;COUNT=10;BYDAY=1FR",
        "1997-09-05",
        True,
        "1997-09: 5; 1997-10: 3; 1997-11: 7; 1997-12: 5; 1998-01: 2; 1998-02: 6; 1998-03: 6; 1998-04: 3; "
        "1998-05: 1; 1998-06: 5",
    ),
    (
        "FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR",
        "1997-09-05",
        True,
        "1997-09: 5; 1997-10: 3; 1997-11: 7; 1997-12: 5",
    ),
    (
        "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
        "1997-09-07",
        True,
        "1997-09: 7 28; 1997-11: 2 30; 1998-01: 4 25; 1998-03: 1 29; 1998-05: 3 31",
    ),
    (
        "FREQ=MONTHLY;COUNT=6;BYDAY=-2MO",
        "1997-09-22",
        True,
        "1997-09: 22; 1997-10: 20; 1997-11: 17; 1997-12: 22; 1998-01: 19; 1998-02: 16",
    ),
    (
        "FREQ=MONTHLY;BYMONTHDAY=-3",
        "1997-09-28",
        False,
        "1997-09: 28; 1997-10: 29; 1997-11: 28; 1997-12: 29; 1998-01: 29; 1998-02: 26",
    ),
    (
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15",
        "1997-09-02",
        True,
        "1997-09: 2 15; 1997-10: 2 15; 1997-11: 2 15; 1997-12: 2 15; 1998-01: 2 15",
    ),
    (
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1",
        "1997-09-30",
        True,
        "1997-09: 30; 1997-10: 1 31; 1997-11: 1 30; 1997-12: 1 31; 1998-01: 1 31; 1998-02: 1",
    ),
    (
        "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15",
        "1997-09-10",
        True,
        "1997-09: 10 11 12 13 14 15; 1999-03: 10 11 12 13",
    ),
    (
        "FREQ=MONTHLY;INTERVAL=2;BYDAY=TU",
        "1997-09-02",
        False,
        "1997-09: 2 9 16 23 30; 1997-11: 4 11 18 25; 1998-01: 6 13 20 27; 1998-03: 3 10 17 24 31",
    ),
    (
        "FREQ=YEARLY;COUNT=10;BYMONTH=6,7",
        "1997-06-10",
        True,
        "; ".join(f"{year}-06: 10; {year}-07: 10" for year in range(1997, 2002)),
    ),
    (
        "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3",
        "1997-03-10",
        True,
        "1997-03: 10; "
        + "; ".join(f"{year}-0{month}: 10" for year in (1999, 2001, 2003) for month in (1, 2, 3)),
    ),
    (
        "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
        "1997-01-01",
        True,
        "1997-01: 1; 1997-04: 10; 1997-07: 19; 2000-01: 1; 2000-04: 9; 2000-07: 18; 2003-01: 1; 2003-04: 10; "
        "2003-07: 19; 2006-01: 1",
    ),
    ("FREQ=YEARLY;BYDAY=20MO", "1997-05-19", False, "1997-05: 19; 1998-05: 18; 1999-05: 17"),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "1997-05-12", False, "1997-05: 12; 1998-05: 11; 1999-05: 17"),
    (
        "FREQ=YEARLY;BYMONTH=3;BYDAY=TH",
        "1997-03-13",
        False,
        "1997-03: 13 20 27; 1998-03: 5 12 19 26; 1999-03: 4 11 18 25",
    ),
    (
        "FREQ=YEARLY;BYDAY=TH;BYMONTH=6,7,8",
        "1997-06-05",
        False,
        "1997-06: 5 12 19 26; 1997-07: 3 10 17 24 31; 1997-08: 7 14 21 28; 1998-06: 4 11 18 25; 1998-07: 2",
    ),
    (
        "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13\nEXDATE;TZID=America/New_York:19970902T090000",
        "1997-09-02",
        False,
        "1998-02: 13; 1998-03: 13; 1998-11: 13; 1999-08: 13; 2000-10: 13",
    ),
    (
        "FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13",
        "1997-09-13",
        False,
        "1997-09: 13; 1997-10: 11; 1997-11: 8; 1997-12: 13; 1998-01: 10; 1998-02: 7; 1998-03: 7; 1998-04: 11; "
        "1998-05: 9",
    ),
    (
        "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
        "1996-11-05",
        False,
        "1996-11: 5; 2000-11: 7; 2004-11: 2",
    ),
    (
        "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3",
        "1997-09-04",
        True,
        "1997-09: 4; 1997-10: 7; 1997-11: 6",
    ),
    (
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
        "1997-09-29",
        False,
        "1997-09: 29; 1997-10: 30; 1997-11: 27; 1997-12: 30; 1998-01: 29; 1998-02: 26; 1998-03: 30",
    ),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "1997-08-05", True, "1997-08: 5 10 19 24"),
    ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "1997-08-05", True, "1997-08: 5 17 19 31"),
    (
        "FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5",
        "2007-01-15",
        True,
        "2007-01: 15 30; 2007-02: 15; 2007-03: 15 30",
    ),
]


@pytest.mark.parametrize(
    ("rule", "start", "complete", "expected"), RFC_DATES, ids=[row[0] for row in RFC_DATES]
)
def test_rfc_5545_examples(rule: str, start: str, complete: bool, expected: str) -> None:
    wanted = [local(f"{day}T09:00") for day in days(expected)]
    assert fires(rule, local(f"{start}T09:00"), len(wanted) + 5 * complete) == wanted


def test_rfc_5545_every_day_in_january() -> None:
    wanted = [local(f"{year}-01-{day:02}T09:00") for year in (1998, 1999, 2000) for day in range(1, 32)]
    for rule in (
        "FREQ=YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA",
        "FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1",
    ):
        assert fires(rule, local("1998-01-01T09:00"), 999) == wanted


def test_rfc_5545_until_christmas() -> None:
    found = fires("FREQ=DAILY;UNTIL=19971224T000000Z", local("1997-09-02T09:00"), 999)
    assert len(found) == 113
    assert found[-1] == local("1997-12-23T09:00")


def test_rfc_5545_within_the_day() -> None:
    start = local("1997-09-02T09:00")

    def clock(rule: str, limit: int = 99) -> list[str]:
        return [f"{time.astimezone(zone_tzinfo(NEW_YORK)):%H:%M}" for time in fires(rule, start, limit)]

    assert clock("FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T170000") == ["09:00", "12:00", "15:00"]
    assert clock("FREQ=MINUTELY;INTERVAL=15;COUNT=6") == [
        "09:00",
        "09:15",
        "09:30",
        "09:45",
        "10:00",
        "10:15",
    ]
    assert clock("FREQ=MINUTELY;INTERVAL=90;COUNT=4") == ["09:00", "10:30", "12:00", "13:30"]
    office = clock("FREQ=DAILY;BYHOUR=9,10,11,12,13,14,15,16;BYMINUTE=0,20,40", 48)
    assert office[:4] == ["09:00", "09:20", "09:40", "10:00"]
    assert office[23:25] == ["16:40", "09:00"]
    assert clock("FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11,12,13,14,15,16", 48) == office


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("", "the rule is empty"),
        ("INTERVAL=2", "FREQ is missing"),
        ("FREQ=FORTNIGHTLY", "FREQ 'FORTNIGHTLY' is not known; accepted are YEARLY"),
        ("FREQ=", "part 'FREQ=' is not understood"),
        ("DAILY", "part 'DAILY' is not understood"),
        ("FREQ=DAILY;", "part '' is not understood"),
        ("FREQ=DAILY;BYEASTER=0", "part 'BYEASTER' is not known"),
        ("FREQ=DAILY;COUNT=3;COUNT=4", "COUNT is given twice"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL '0' is out of range; accepted are 1 to"),
        ("FREQ=DAILY;INTERVAL=-1", "INTERVAL '-1' is out of range"),
        ("FREQ=DAILY;INTERVAL=1.5", "INTERVAL '1.5' is out of range"),
        ("FREQ=DAILY;INTERVAL=99999999999999999", "INTERVAL '99999999999999999' is out of range"),
        ("FREQ=DAILY;COUNT=0", "COUNT '0' is out of range"),
        ("FREQ=DAILY;COUNT=X", "COUNT 'X' is out of range"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20270101", "COUNT and UNTIL are both given"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL 'TOMORROW' is not a date"),
        ("FREQ=DAILY;UNTIL=20260230", "UNTIL '20260230' is not a date"),
        ("FREQ=DAILY;UNTIL=20260101T250000Z", "UNTIL '20260101T250000Z' is not a date"),
        ("FREQ=DAILY;WKST=XX", "WKST 'XX' is not a day"),
        ("FREQ=DAILY;BYMONTH=0", "BYMONTH 0 is out of range; accepted are 1 to 12"),
        ("FREQ=DAILY;BYMONTH=-1", "BYMONTH -1 is out of range"),
        ("FREQ=DAILY;BYMONTH=JAN", "BYMONTH has 'JAN'; accepted are whole numbers"),
        ("FREQ=DAILY;BYMONTHDAY=0", "BYMONTHDAY 0 is out of range; accepted are 1 to 31 and -31 to -1"),
        ("FREQ=DAILY;BYMONTHDAY=32", "BYMONTHDAY 32 is out of range"),
        ("FREQ=YEARLY;BYYEARDAY=367", "BYYEARDAY 367 is out of range"),
        ("FREQ=YEARLY;BYWEEKNO=54", "BYWEEKNO 54 is out of range"),
        ("FREQ=MONTHLY;BYDAY=MO;BYSETPOS=0", "BYSETPOS 0 is out of range"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR 24 is out of range; accepted are 0 to 23"),
        ("FREQ=DAILY;BYMINUTE=60", "BYMINUTE 60 is out of range"),
        ("FREQ=DAILY;BYSECOND=61", "BYSECOND 61 is out of range"),
        ("FREQ=DAILY;BYSECOND=60", "BYSECOND 60 is a leap second"),
        ("FREQ=DAILY;BYHOUR=", "part 'BYHOUR=' is not understood"),
        ("FREQ=DAILY;BYHOUR=1,,2", "BYHOUR has ''"),
        ("FREQ=WEEKLY;BYDAY=XX", "BYDAY has 'XX'; accepted are days such as MO, 2TU and -1FR"),
        ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY 0MO is out of range"),
        ("FREQ=YEARLY;BYDAY=54MO", "BYDAY 54MO is out of range"),
        (
            "FREQ=WEEKLY;BYDAY=1MO",
            "BYDAY has a numbered day with FREQ=WEEKLY; accepted with MONTHLY and YEARLY only",
        ),
        ("FREQ=YEARLY;BYWEEKNO=5;BYDAY=1MO", "BYDAY has a numbered day with BYWEEKNO"),
        ("FREQ=DAILY\nFREQ=WEEKLY", "more than one rule"),
        ("EXDATE:20260101T000000Z", "there is no rule"),
        (
            "DTSTART:20260101T000000Z\nFREQ=DAILY",
            "a DTSTART line is not accepted; give the start as start_at",
        ),
        ("FREQ=DAILY\nEXRULE:FREQ=WEEKLY", "a EXRULE line is not accepted"),
        ("FREQ=DAILY\nEXDATE:", "EXDATE has no dates"),
        ("FREQ=DAILY\nEXDATE:noon", "EXDATE 'NOON' is not a date"),
        ("FREQ=DAILY\nRDATE;VALUE=PERIOD:20260101T000000Z/PT1H", "RDATE has 'VALUE=PERIOD'"),
        ("FREQ=DAILY\nRDATE;VALUE=DATE:20260101", "RDATE has a date without a time"),
        ("FREQ=DAILY\nEXDATE;TZID=Mars/Base:20260101T000000", "timezone: 'Mars/Base'"),
        ("FREQ=DAILY;BYMONTHDAY=" + ",".join(["1"] * 9000), "the rule has 18,021 characters"),
        # what can never happen
        ("FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", "no date that ever comes"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;INTERVAL=4", "no date that ever comes"),  # from an odd year
        ("FREQ=YEARLY;BYYEARDAY=1;BYMONTH=5", "no date that ever comes"),
        ("FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6", "no date that ever comes"),
        ("FREQ=MONTHLY;INTERVAL=12;BYMONTH=2", "no date that ever comes"),
        ("FREQ=MONTHLY;BYDAY=6MO", "no date that ever comes"),
        ("FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6", "no date that ever comes"),
        ("FREQ=WEEKLY;BYDAY=MO;BYSETPOS=2", "no date that ever comes"),
        ("FREQ=DAILY;BYHOUR=1,2;BYSETPOS=3", "no date that ever comes"),
        ("FREQ=DAILY;INTERVAL=7;BYDAY=SU", "no date that ever comes"),
        ("FREQ=HOURLY;INTERVAL=24;BYHOUR=3", "no date that ever comes"),
        ("FREQ=HOURLY;INTERVAL=7;BYHOUR=9;BYDAY=SU", "no date that ever comes"),
        ("FREQ=SECONDLY;INTERVAL=3600;BYMINUTE=30", "no date that ever comes"),
        ("FREQ=SECONDLY;BYHOUR=1;BYSETPOS=2", "no date that ever comes"),
    ],
)
def test_refused_rules(rule: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refusal:
        check(RRule(rule, at("2025-01-01T09:00")))
    assert len(str(refusal.value)) < 250
    assert "\n" not in str(refusal.value)


def test_local_time_stays_the_same_across_daylight_saving() -> None:
    found = fires("FREQ=WEEKLY", local("2026-03-01T09:00"), 3)
    assert found == [at("2026-03-01T14:00"), at("2026-03-08T13:00"), at("2026-03-15T13:00")]


def test_a_time_in_a_gap_runs_after_it_and_an_ambiguous_one_first() -> None:
    spring = fires("FREQ=DAILY", local("2026-03-07T02:30"), 3)
    assert spring == [at("2026-03-07T07:30"), at("2026-03-08T07:00"), at("2026-03-09T06:30")]
    autumn = fires("FREQ=DAILY", local("2026-10-31T01:30"), 3)
    assert autumn == [at("2026-10-31T05:30"), at("2026-11-01T05:30"), at("2026-11-02T06:30")]
    merged = fires("FREQ=DAILY;BYHOUR=2,3;BYMINUTE=0,30;COUNT=6", local("2026-03-08T00:00"), 99)
    assert merged[:3] == [at("2026-03-08T07:00"), at("2026-03-08T07:30"), at("2026-03-09T06:00")]
    assert len(merged) == 6, "equal instants fire once, and count once"


def test_a_start_in_the_second_of_two_hours() -> None:
    start = at("2026-11-01T06:30")  # 01:30 EST, an hour after 01:30 EDT
    assert fires("FREQ=DAILY;COUNT=2", start, 9) == [start, at("2026-11-02T06:30")]
    assert fires("FREQ=DAILY;BYMINUTE=15,30,45;COUNT=3", start, 9) == [
        start,
        at("2026-11-01T06:45"),
        at("2026-11-02T06:15"),
    ]
    rule = RRule("FREQ=DAILY;BYMINUTE=15,30,45", start, NEW_YORK)
    assert count(rule, start - timedelta(seconds=1), at("2026-11-03T00:00")) == 5
    assert latest(rule, start - timedelta(days=1), at("2026-11-01T06:40")) == start


def test_steps_advance_in_elapsed_time() -> None:
    start = local("2026-03-08T00:30")
    assert fires("FREQ=HOURLY", start, 4) == [start + timedelta(hours=n) for n in range(4)]
    assert fires("FREQ=MINUTELY;INTERVAL=90", start, 4) == [
        start + timedelta(minutes=90 * n) for n in range(4)
    ]
    early = fires("FREQ=MINUTELY;INTERVAL=30;BYHOUR=1", local("2026-11-01T00:00"), 5)
    assert [time - early[0] for time in early[:4]] == [timedelta(minutes=30 * n) for n in range(4)], (
        "01:xx twice"
    )
    assert early[4] == local("2026-11-02T01:00")
    howe = fires(
        "FREQ=HOURLY;BYMINUTE=0", local("2026-10-03T23:00", "Australia/Lord_Howe"), 6, "Australia/Lord_Howe"
    )
    assert {time.astimezone(zone_tzinfo("Australia/Lord_Howe")).minute for time in howe} == {0}


def test_start_fires_only_if_it_matches_and_is_not_counted() -> None:
    start = at("2026-01-01T09:00")  # a Thursday
    assert fires("FREQ=WEEKLY;BYDAY=MO;COUNT=2", start, 9, "UTC") == [
        at("2026-01-05T09:00"),
        at("2026-01-12T09:00"),
    ]


def test_until_is_inclusive_in_each_of_its_forms() -> None:
    start = local("2026-01-01T09:00")
    for until in ("20260103T140000Z", "20260103T090000", "20260103"):
        assert len(fires(f"FREQ=DAILY;UNTIL={until}", start, 9)) == 3, until
    for until in ("20260103T135959Z", "20260103T085959", "20260102"):
        assert len(fires(f"FREQ=DAILY;UNTIL={until}", start, 9)) == 2, until
    assert fires("FREQ=DAILY;UNTIL=20251231", start, 9) == []


def test_missing_days_are_skipped() -> None:
    found = fires("FREQ=MONTHLY", at("2026-01-31T09:00"), 3, "UTC")
    assert found == [at("2026-01-31T09:00"), at("2026-03-31T09:00"), at("2026-05-31T09:00")]
    assert fires("FREQ=YEARLY", at("2024-02-29T09:00"), 2, "UTC")[1] == at("2028-02-29T09:00")


def test_added_and_excluded_dates() -> None:
    rule = (
        "RRULE:FREQ=DAILY;COUNT=4\r\n"
        "EXDATE;TZID=America/New_York:20260102T090000,\r\n 20260103T090000\r\n"
        "RDATE:20260102T180000Z,20260103T140000Z,20251231T000000Z,20260101T140000Z"
    )
    start = local("2026-01-01T09:00")
    expected = [start, at("2026-01-02T18:00"), local("2026-01-04T09:00")]
    timing = RRule(rule, start, NEW_YORK)
    assert fires(rule, start, 9) == expected, (
        "COUNT counts before EXDATE; EXDATE wins; equal instants fire once"
    )
    assert count(timing, at("2025-01-01"), at("2027-01-01")) == 3
    assert latest(timing, at("2025-01-01"), at("2026-01-04T00:00")) == expected[1]
    assert latest(timing, at("2025-01-01"), at("2026-01-02T17:00")) == start


def test_a_whole_day_may_be_excluded() -> None:
    rule = RRule("FREQ=HOURLY\nEXDATE;VALUE=DATE:20260102", local("2026-01-01T22:00"), NEW_YORK)
    assert next_after(rule, local("2026-01-01T23:00")) == local("2026-01-03T00:00")
    assert count(rule, local("2026-01-01T21:00"), local("2026-01-03T01:00")) == 4
    assert latest(rule, local("2026-01-01T21:00"), local("2026-01-02T12:00")) == local("2026-01-01T23:00")


def test_an_impossible_rule_may_have_added_dates() -> None:
    rule = "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30\nRDATE:20260303T090000Z"
    assert fires(rule, at("2026-01-01T09:00"), 9, "UTC") == [at("2026-03-03T09:00")]


def test_set_positions_look_at_the_whole_first_week() -> None:
    """DTSTART is a Wednesday: the first of Monday and Wednesday is the Monday before it, which is gone."""
    found = fires("FREQ=WEEKLY;BYDAY=MO,WE;BYSETPOS=1", at("2026-01-07T09:00"), 2, "UTC")
    assert found == [at("2026-01-12T09:00"), at("2026-01-19T09:00")]


def test_week_numbers_agree_with_the_iso_calendar() -> None:
    start = at("2000-01-01T00:00")
    all_days = [start + timedelta(days=n) for n in range(366 * 28)]

    def weeks_of(year: int) -> int:
        return datetime(year, 12, 28).isocalendar().week

    for week in (1, 20, 52, 53):
        wanted = [day for day in all_days if day.isocalendar().week == week]
        assert fires(f"FREQ=YEARLY;BYWEEKNO={week}", start, len(wanted), "UTC") == wanted
    for week in (-1, -2, -52, -53):
        wanted = [d for d in all_days if d.isocalendar().week - weeks_of(d.isocalendar().year) - 1 == week]
        assert fires(f"FREQ=YEARLY;BYWEEKNO={week}", start, len(wanted), "UTC") == wanted
