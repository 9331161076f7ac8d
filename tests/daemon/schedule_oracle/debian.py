"""Debian's cron 3.0pl1-162, as a model: what entry.c reads, and what the loop of cron.c does minute by minute.

Written from the source of the package (entry.c: get_range, get_number, load_entry; cron.c: main, find_jobs), with
its own clocks: `running` is local time in minutes, `virtual` the local minute up to which everything was run.
"""

import re
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
WEEKDAYS = "sun mon tue wed thu fri sat sun".split()
FIELDS = [(0, 59, []), (0, 23, []), (1, 31, []), (1, 12, MONTHS), (0, 7, WEEKDAYS)]
NICKNAMES = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}
EPOCH = datetime(1970, 1, 1)


class Refused(Exception):
    """Debian's cron would not load the entry."""


def number(text, low, names):
    if text.lower() in names:
        return names.index(text.lower()) + low
    if not text.isascii() or not text.isdigit():
        raise Refused(text)
    return int(text)


RANGE = re.compile(r"(\*|[0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?(/[0-9A-Za-z]*)?")


def field(text, low, high, names):
    values = set()
    while True:
        found = RANGE.match(text)
        if not found:
            raise Refused(text)
        begin, end, step = found.groups()
        if begin == "*":
            first, last = low, high
        else:
            first = last = number(begin, low, names)
            if end is not None:
                last = number(end, low, names)
            elif step:
                raise Refused(text)
        step = number(step[1:], 0, []) if step else 1
        if step <= 0 or not low <= first <= high or not low <= last <= high:
            raise Refused(text)
        values.update(range(first, last + 1, step))
        text = text[found.end():]
        if not text.startswith(","):
            # Skip_Nonblanks: whatever else stands there is passed over, `#2` of `5#2`, say.
            return values
        text = text[1:]


class Entry:
    def __init__(self, text):
        text = NICKNAMES.get(text, text)
        fields = text.split()
        if len(fields) != 5:
            raise Refused(text)
        parsed = [field(found, *kind) for found, kind in zip(fields, FIELDS)]
        self.minutes, self.hours, self.days, self.months, self.weekdays = parsed
        if self.weekdays & {0, 7}:
            self.weekdays |= {0, 7}
        star = [found.startswith("*") for found in fields]
        self.is_wild = star[0] or star[1]
        self.needs_both_days = star[2] or star[4]

    def fits_day(self, date):
        if date.month not in self.months:
            return False
        by_day = date.day in self.days
        by_weekday = (date.weekday() + 1) % 7 in self.weekdays
        return by_day and by_weekday if self.needs_both_days else by_day or by_weekday

    def fits(self, minute):
        at = EPOCH + timedelta(minutes=minute)
        return at.minute in self.minutes and at.hour in self.hours and self.fits_day(at)


class Clock:
    """A zone's offsets, kept: asking for them is dear."""

    def __init__(self, zone):
        self.zone = ZoneInfo(zone)
        self.kept = {}

    def offset(self, at):
        quarter = at // 900
        if quarter not in self.kept:
            local = datetime.fromtimestamp(quarter * 900, timezone.utc).astimezone(self.zone)
            self.kept[quarter] = int(local.utcoffset().total_seconds())
        return self.kept[quarter]

    def changes(self, after, until):
        """Every change of the clocks: when, and by how many seconds."""
        quarters = range(after // 900, until // 900 + 1)
        steps = ((quarter * 900, self.offset(quarter * 900) - self.offset(quarter * 900 - 1)) for quarter in quarters)
        return [(at, step) for at, step in steps if step]


def fires(entry, clock, after, until):
    """When jobs are started, in seconds since 1970: after `after`, up to and with `until`."""
    # A day ahead, so that the virtual clock has met what changed before.
    begin = after // 60 * 60 - 86400
    virtual = (begin + clock.offset(begin)) // 60
    started = []

    def find(minute, wild, fixed):
        if (entry.is_wild and wild or not entry.is_wild and fixed) and entry.fits(minute):
            started.append(at)

    at = begin
    while at + 60 <= until:
        at += 60
        running = (at + clock.offset(at)) // 60
        difference = running - virtual
        if difference == 1:
            virtual = running
            # Nothing but this case for a whole day on which nothing runs: the day is left out.
            if running % 1440 == 0 and not entry.fits_day(EPOCH + timedelta(minutes=running)):
                ahead = at + 86400 - 60
                if clock.offset(ahead) == clock.offset(at) and ahead <= until:
                    at, virtual = ahead, running + 1439
                    continue
            find(virtual, True, True)
        elif difference > 180 or difference <= -180:
            virtual = running
            find(running, True, True)
        elif difference > 5:
            find(running, True, False)
            while virtual < running:
                virtual += 1
                find(virtual, False, True)
        elif difference > 0:
            while virtual < running:
                virtual += 1
                find(virtual, True, True)
        else:
            find(running, True, False)
    return sorted({at for at in started if at > after})
