#!/usr/bin/env python3
"""Writes examples/orders.jsonl: 1,000 orders, the same ones every time.

About 6 % break one rule of the workflow's validation and must end as errored; all others must complete. The rules:
lines are not empty; quantity 1..=10,000; cents 1..=1,000,000; currency EUR, USD, GBP, JPY or CHF; the total of
quantity * cents is at most 10,000,000; the customer's name is not blank; an email, if given, contains an @.

Only random.random() is used: it is the one generator whose sequence Python promises not to change.
"""

import json
import pathlib
import random
import sys

COUNT = 1000
CURRENCIES = ["EUR", "USD", "GBP", "JPY", "CHF"]
LINES_MAX = 200
QUANTITY_MAX = 10_000
CENTS_MAX = 1_000_000
TOTAL_MAX = 10_000_000

NAMES = [
    "Ada Lovelace", "Grace Hopper", "José Núñez", "Zoë Brontë", "Łukasz Żółć", "Søren Ångström", "Đặng Thị Hằng",
    "Иван Смирнов", "Олена Шевченко", "Γιώργος Παπαδόπουλος", "山田太郎", "鈴木 花子", "王小明", "김민수", "สมชาย ใจดี",
    "अनीता शर्मा", "தமிழ் செல்வன்", "আনিকা রহমান", "محمد علي", "فاطمة الزهراء", "דוד כהן", "თამარ ბერიძე", "Արամ Խաչատրյան",
    "አበበ ቢቂላ", "ភក្តី សុខ", "O'Brien & Sons <Ltd>", 'Robert "Bobby"; DROP TABLE orders;--', "🦀 Ferris", "👩‍👩‍👧‍👦 Family Ltd",
    "e\u0301clair (combining)", "\u202eright to left override\u202c", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠜎", "null", "  spaced out  ", "Ω", "N",
]
EMAILS = [
    "ada@example.com", "grace.hopper+orders@example.org", "用户@例子.广告", "иван@пример.рф", "a@b", '"odd @ quoted"@example.com',
    "very.long.address.of.a.customer.with.much.to.say@mail.subdomain.example.net",
]
WORDS = [
    "please", "ring", "twice", "fragile", "größer", "çok", "acil", "пожалуйста", "осторожно", "至急", "お願いします", "加急",
    "부탁해요", "رجاءً", "بسرعة", "בבקשה", "ด่วน", "कृपया", "🎁", "🚀", "👍🏽", "🏳️‍🌈", "∑", "—", "€5", "100%", "C:\\temp", "<b>", "&amp;", "'quoted'",
]
GOODS = ["bolt", "nut", "gear", "belt", "lamp", "книга", "茶", "قهوة", "ספר", "schräubchen", "🧦", "widget", "cable", "fuse", "chip"]
NOTES = [
    "", " ", "\u0000", "before\u0000after", "\u0000\u0000\u0000", "tab\there\nand a new line\r\n", "back\\slash \"quote\" /slash/",
    "\u0001\u001f\u007f control characters", "\u2028line\u2029paragraph", "\ufeffbyte order mark", "شكراً جزيلاً ١٢٣ abc", "תודה רבה abc 123",
    "z̸̢͝a̶̛͓l̷̰͝g̶̡͒o̵̧͛", "👨‍👩‍👧‍👦👩🏾‍🚀🇪🇺", "\U0010ffff", "\uffff", "{\"json\": \"inside\"}", "%s %d ${HOME} $(true) `true`", "\u200b",
]
REFERENCES = [
    9007199254740991, 9007199254740992, 9007199254740993, 9007199254740995, 1 << 53, (1 << 62) + 1, 9223372036854775806,
    9223372036854775807, 1234567890123456789, 4611686018427387905, 4294967296, 2147483648, 1, 0,
]

# The broken rule, by turns. Each changes a valid order in one way.
BREAKS = [
    ("no lines", lambda order: order.update(lines=[])),
    ("quantity zero", lambda order: order["lines"][-1].update(quantity=0)),
    ("quantity negative", lambda order: order["lines"][0].update(quantity=-1)),
    ("quantity above the limit", lambda order: order["lines"][0].update(quantity=QUANTITY_MAX + 1, cents=1)),
    ("cents zero", lambda order: order["lines"][0].update(cents=0)),
    ("cents negative", lambda order: order["lines"][-1].update(cents=-500)),
    ("cents above the limit", lambda order: order["lines"][0].update(quantity=1, cents=CENTS_MAX + 1)),
    ("currency unknown", lambda order: order.update(currency="QQQ")),
    ("currency in lower case", lambda order: order.update(currency="eur")),
    ("currency empty", lambda order: order.update(currency="")),
    ("total one above the limit", lambda order: order.update(
        lines=[{"sku": "edge-9", "quantity": 10, "cents": CENTS_MAX}, {"sku": "edge-1", "quantity": 1, "cents": 1}])),
    ("total far above the limit", lambda order: order.update(
        lines=[{"sku": f"bulk-{i}", "quantity": QUANTITY_MAX, "cents": CENTS_MAX} for i in range(LINES_MAX)])),
    ("name empty", lambda order: order["customer"].update(name="")),
    ("name blank", lambda order: order["customer"].update(name=" \t\u3000\u00a0\n")),
    ("email without @", lambda order: order["customer"].update(email="nobody.example.com")),
    ("email empty", lambda order: order["customer"].update(email="")),
]

# Orders at the very edge of a rule that must still complete.
EDGES = [
    [{"sku": "edge", "quantity": 10, "cents": CENTS_MAX}],
    [{"sku": "edge", "quantity": QUANTITY_MAX, "cents": 1000}],
    [{"sku": "edge", "quantity": 1, "cents": 1}],
    [{"sku": "", "quantity": QUANTITY_MAX, "cents": 1}],
    [{"sku": "same", "quantity": 1, "cents": 1}] * LINES_MAX,
    [{"sku": "s" * 3000, "quantity": 1, "cents": CENTS_MAX}],
    [{"sku": "\u0000", "quantity": 2, "cents": 5}],
]


class Dice:
    def __init__(self, seed):
        self.random = random.Random(seed).random

    def below(self, limit):
        return int(self.random() * limit)

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def pick(self, items):
        return items[self.below(len(items))]

    def chance(self, percent):
        return self.random() * 100 < percent


def line_count(dice, index):
    if index % 125 == 60:
        return LINES_MAX
    if dice.chance(70):
        return dice.between(1, 4)
    if dice.chance(85):
        return dice.between(5, 20)
    return dice.between(21, 80)


def line(dice, budget, long):
    sku = f"{dice.pick(GOODS)}-{dice.below(100_000):05}"
    if long:
        sku += "-" + "-".join(dice.pick(GOODS) for _ in range(15))
    quantity = min(dice.pick([1, 1, 1, 2, 3, 5, 10, 12, 100, 144]), budget)
    cents = dice.between(1, max(1, min(CENTS_MAX, budget // quantity, dice.pick([500, 5_000, 50_000, CENTS_MAX]))))
    return {"sku": sku, "quantity": quantity, "cents": cents}


def valid(dice, index):
    customer = {"name": dice.pick(NAMES)}
    if dice.chance(65):
        customer["email"] = dice.pick(EMAILS)
    if index % 71 == 13:
        lines = [dict(item) for item in EDGES[index // 71 % len(EDGES)]]
    else:
        count = line_count(dice, index)
        budget = TOTAL_MAX // count
        lines = [line(dice, budget, count == LINES_MAX) for _ in range(count)]
    order = {"customer": customer, "lines": lines, "currency": dice.pick(CURRENCIES)}
    if dice.chance(12):
        order["note"] = dice.pick(NOTES)
    elif dice.chance(40):
        order["note"] = " ".join(dice.pick(WORDS) for _ in range(dice.between(1, 12)))
    elif dice.chance(2):
        order["note"] = " ".join(dice.pick(WORDS) for _ in range(2500))
    if dice.chance(50):
        order["express"] = dice.chance(50)
    if dice.chance(30):
        order["reference"] = dice.pick(REFERENCES)
    return order


def is_valid(order):
    lines = order["lines"]
    email = order["customer"].get("email")
    return (
        len(lines) > 0
        and all(1 <= item["quantity"] <= QUANTITY_MAX for item in lines)
        and all(1 <= item["cents"] <= CENTS_MAX for item in lines)
        and order["currency"] in CURRENCIES
        and sum(item["quantity"] * item["cents"] for item in lines) <= TOTAL_MAX
        and order["customer"]["name"].strip() != ""
        and (email is None or "@" in email)
    )


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "examples/orders.jsonl"
    dice = Dice(20_240_229)
    errored = 0
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for index in range(COUNT):
            order = valid(dice, index)
            assert is_valid(order), (index, order)
            expect = "complete"
            if index % 16 == 7:
                reason, spoil = BREAKS[errored % len(BREAKS)]
                spoil(order)
                assert not is_valid(order), (reason, order)
                expect = "errored"
                errored += 1
            record = {"id": f"order-{index + 1:04}", "expect": expect, "input": order}
            out.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{COUNT} orders, {errored} of them must fail, {path.stat().st_size} bytes in {path}")


if __name__ == "__main__":
    main()
