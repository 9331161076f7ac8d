"""Fire times of `callsheet`, compared with Debian's cron (a model of its source) and with croniter.

Every fire must be Debian's, exactly. Against croniter every difference must be one of those that docs/schedules.md
explains; any other ends this with 1. With --freeze the table of tests/daemon/schedule_table.rs is written anew, from the
model and not from our program.
"""

import csv
import random
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

from croniter import croniter
from croniter.croniter import CroniterError

import debian

TABLE = Path(__file__).parents[2] / "fixtures" / "schedule_table.csv"
# Fires of one schedule that croniter, which is slow, is asked for.
LISTED = 60
DAY = 86400
# croniter reads 4-4 as all values there are.
RANGE_OF_ONE = re.compile(r"\b(\d+)-\1\b")

# Zone, and days on which or around which its clocks are changed, or nothing happens.
ZONES = {
    "UTC": ["2026-03-29", "2028-02-28"],
    "Asia/Kolkata": ["2026-03-29"],
    "Europe/Berlin": ["2026-03-28", "2026-10-24", "2026-12-30"],
    "America/New_York": ["2026-03-07", "2026-10-31"],
    "Australia/Lord_Howe": ["2026-04-04", "2026-10-03"],
    "Africa/Casablanca": ["2026-02-14", "2026-03-21"],
    "America/Santiago": ["2026-04-04", "2026-09-05"],
    "Asia/Beirut": ["2026-03-28", "2026-10-24"],
    "Antarctica/Troll": ["2026-03-28", "2026-10-24"],
}
EXPRESSIONS = [
    "30 2 * * *", "0,30 2 * * *", "15 1 * * *", "45 1 * * *", "0 3 * * *", "5 0 * * *", "30 23 * * *", "@daily",
    "@hourly", "*/30 1-3 * * *", "30 * * * *", "20 */2 * * *", "0 2,3 * * *", "59 1,2,3 * * *", "0 4 * * sun",
    "10 2 29 * 1", "0 12 */2 * mon", "0 12 1-31/2 * mon", "15 2 * 3,10 5-7", "@weekly", "0 0 29 2 *",
]
# What is not read alike: the text, whether Debian's cron loads it, whether croniter does.
REFUSED = [
    ("5/10 * * * *", False, True), ("*/90 * * * *", True, True), ("0 22-6 * * *", True, True),
    ("0 0 * * fri-mon", True, True), ("0 0 L * *", False, True), ("0 0 * * 5#2", True, True),
    ("0 0 ? * *", False, True), ("0 0 30 2 *", True, True), ("60 * * * *", False, False),
    ("0 24 * * *", False, False), ("0 0 0 * *", False, False), ("0 0 * 13 *", False, False),
    ("0 0 * * 8", False, False), ("*/0 * * * *", False, False), ("* * * *", False, False),
    ("@reboot", False, False), ("1,,2 * * * *", False, False), ("-1 * * * *", False, False),
]


class Case:
    def __init__(self, cron, zone, after, until):
        self.cron, self.zone, self.after, self.until = cron, zone, after, until

    def __str__(self):
        begin = datetime.fromtimestamp(self.after, timezone.utc)
        return f"{self.cron!r} in {self.zone} from {begin:%FT%TZ} for {(self.until - self.after) / DAY:.2f} days"


def ours(program, cases):
    lines = "".join(f"{case.cron}\t{case.zone}\t{case.after}\t{case.until}\n" for case in cases)
    told = subprocess.run([program], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == len(cases), "an answer for every case"
    return [line if line.startswith("error:") else [int(at) for at in line.split()] for line in told]


def by_croniter(case, count, seconds=False):
    start = datetime.fromtimestamp(case.after, timezone.utc).astimezone(ZoneInfo(case.zone))
    told = []
    try:
        walk = croniter(case.cron, start, implement_cron_bug=True, second_at_beginning=seconds)
        while len(told) < count:
            at = int(walk.get_next(datetime).timestamp())
            if at > case.until:
                break
            told.append(at)
    except CroniterError:
        pass
    return told


def midnight(day):
    return int(datetime.fromisoformat(day).replace(tzinfo=timezone.utc).timestamp())


def some_field(low, high, names=()):
    def value():
        number = random.randint(low, high)
        return random.choice(names) if names and random.random() < 0.3 else str(number)

    def part():
        first, last = sorted(random.randint(low, high) for _ in "ab")
        span = f"{first}-{last}"
        return random.choice([value(), value(), span, f"{span}/{random.randint(1, min(9, high - low))}"])

    kind = random.random()
    if kind < 0.35:
        return "*"
    if kind < 0.45:
        return f"*/{random.randint(1, min(30, high - low))}"
    return ",".join(part() for _ in range(random.choice([1, 1, 2, 3])))


def some_expression():
    hours = random.choice([(0, 23), (0, 4), (1, 3), (22, 23)])
    fields = [some_field(0, 59), some_field(*hours), some_field(1, 31), some_field(1, 12, debian.MONTHS)]
    if random.random() < 0.6:
        # Days that are there on most days: what is asked about is mostly the hour.
        fields[2:] = ["*", "*"]
    return " ".join([*fields, some_field(0, 7, debian.WEEKDAYS)])


def random_cases(clocks, count):
    begin, end = midnight("2024-01-01"), midnight("2027-12-31")
    changes = {zone: [at for at, _ in clock.changes(begin, end)] for zone, clock in clocks.items()}
    for _ in range(count):
        zone = random.choice(list(clocks))
        if changes[zone] and random.random() < 0.8:
            after = random.choice(changes[zone]) - random.randint(0, 8 * 3600)
        else:
            after = random.randint(begin, end)
        yield Case(some_expression(), zone, after, after + 5 * DAY // 4)


def long_cases(clocks, count):
    for _ in range(count):
        cron = f"{random.randint(0, 59)} {random.randint(0, 23)} {' '.join(some_expression().split()[2:])}"
        after = random.randint(midnight("2024-01-01"), midnight("2026-01-01"))
        yield Case(cron, random.choice(list(clocks)), after, after + 500 * DAY)


def explanation(case, at, clocks):
    """Why croniter and crontab may differ about an instant, or nothing."""
    if RANGE_OF_ONE.search(case.cron):
        return "a range of one value"
    for change, step in clocks[case.zone].changes(case.after - DAY, case.until + DAY):
        if abs(at - change) <= abs(step):
            return "a gap in the clock" if step > 0 else "a fold in the clock"
    return None


def compare(cases, answers, clocks, seen):
    problems = []
    for case, told in zip(cases, answers):
        truth = debian.fires(debian.Entry(case.cron), clocks[case.zone], case.after, case.until)
        if isinstance(told, str):
            if not ("never fires" in told and not truth):
                problems.append(f"{case}: {told}, but Debian has {truth[:3]}")
            continue
        seen["fires"] += len(truth)
        if told != truth:
            odd = sorted(set(told) ^ set(truth))[:5]
            problems.append(f"{case}: not as Debian at {[local(at, case.zone) for at in odd]}")
        other = by_croniter(case, LISTED)
        mine = [at for at in told if not other or len(other) < LISTED or at <= other[-1]]
        for at in sorted(set(mine) ^ set(other)):
            why = explanation(case, at, clocks)
            seen[f"differences from croniter: {why}"] += 1
            if why is None:
                problems.append(f"{case}: unlike croniter at {local(at, case.zone)}")
                break
    return problems


def compare_seconds(program, count, seen):
    """Six and seven fields, which Debian has not: against croniter alone, where clocks are left alone."""
    cases = []
    for _ in range(count):
        after = random.randint(midnight("2024-01-01"), midnight("2026-12-01"))
        years = [] if random.random() < 0.5 else [random.choice(["*", "2024-2026", "2025", "*/2", "2024,2026"])]
        cron = " ".join([some_field(0, 59), *some_expression().split(), *years])
        cases.append(Case(cron, "UTC", after, after + DAY))
    problems = []
    for case, told in zip(cases, ours(program, cases)):
        if RANGE_OF_ONE.search(case.cron):
            continue
        other = by_croniter(case, LISTED, seconds=True)
        if isinstance(told, str):
            if not ("never fires" in told and not other):
                problems.append(f"{case}: {told}, but croniter has {other[:3]}")
            continue
        seen["fires with seconds"] += len(other)
        if told[:LISTED] != other:
            odd = sorted(set(told[:LISTED]) ^ set(other))[:3]
            problems.append(f"{case}: unlike croniter at {[local(at, 'UTC') for at in odd]}")
    return problems


def compare_refused(program):
    problems = []
    cases = [Case(cron, "UTC", 0, 0) for cron, _, _ in REFUSED]
    for (cron, by_debian, by_croniter_too), told in zip(REFUSED, ours(program, cases)):
        try:
            debian.Entry(cron)
            loads = True
        except debian.Refused:
            loads = False
        found = (isinstance(told, str), loads, croniter.is_valid(cron))
        if found != (True, by_debian, by_croniter_too):
            problems.append(f"{cron!r}: refused by us, loaded by Debian, by croniter: {found}")
    return problems


def local(at, zone):
    return datetime.fromtimestamp(at, timezone.utc).astimezone(ZoneInfo(zone)).isoformat()


def table_cases():
    for zone, days in ZONES.items():
        for day in days:
            for cron in EXPRESSIONS:
                after = midnight(day) + 8 * 3600
                yield Case(cron, zone, after, after + 2 * DAY)


def table(clocks):
    rows = [["cron", "zone", "after", "until", "fires"]]
    for case in table_cases():
        fires = debian.fires(debian.Entry(case.cron), clocks[case.zone], case.after, case.until)
        fires = " ".join(local(at, case.zone) for at in fires)
        rows.append([case.cron, case.zone, local(case.after, "UTC"), local(case.until, "UTC"), fires])
    return rows


def main():
    program, freeze = sys.argv[1], "--freeze" in sys.argv
    seed = next((int(word[7:]) for word in sys.argv if word.startswith("--seed=")), 20261121)
    random.seed(seed)
    clocks = {zone: debian.Clock(zone) for zone in ZONES}
    rows = table(clocks)
    if freeze:
        with TABLE.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    with TABLE.open(newline="") as file:
        frozen = list(csv.reader(file))
    problems = [] if frozen == rows else [f"{TABLE.name} is not what the model says; write it with --freeze"]
    seen = Counter()
    cases = [*table_cases(), *random_cases(clocks, 700), *long_cases(clocks, 40)]
    problems += compare(cases, ours(program, cases), clocks, seen)
    problems += compare_seconds(program, 250, seen)
    problems += compare_refused(program)
    print(f"{len(cases)} schedules of five fields, 250 with seconds, seed {seed}")
    for what, count in sorted(seen.items()):
        print(f"  {count:7} {what}")
    for problem in problems[:20]:
        print("UNEXPLAINED", problem)
    return 1 if problems or seen["fires"] < 5000 or seen["fires with seconds"] < 1000 else 0


sys.exit(main())
