#!/usr/bin/env python3
"""Checks that no class of the product has more than 25 data members, no function a body of more than
70 lines, and no source more than 500 lines.

The members of a nested class count to the class around it; static ones do not count. A class that
must have more says so in the comment above it: `exception: ` and the reason. Prints `file:line:
what` for each class that is too large, and for each exception that is not needed. A function may
have its exception in the same way, such as for a table. Functions and sources of tests have the same
bounds.

The classes are found by their text, without a compiler: a member is a statement in the body of a
class that declares no function, type or static member.
"""

import re
import sys

import checks

MEMBERS_MAX = 25
LINES_MAX = 500
BODY_MAX = 70
SCOPE = ("engine/", "verbs/", "metrics/", "config/", "apps/")
SOURCE = (".h", ".cc")
EXCEPTION = re.compile(r"\bexception: +\S+ +\S+")

UNREAD = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
# What may stand between words and names no member: attributes, and macros with their arguments.
DECORATION = re.compile(r"\[\[[^\]]*\]\]|\b(?:alignas|decltype|explicit|noexcept|REMORA_\w+)\s*"
                        r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\bREMORA_[A-Z_]+\b")
HEAD = re.compile(r"(?<!enum )\b(?:class|struct|union)\s+([A-Za-z_][\w:]*)?\s*(?:final\s*)?"
                  r"(?::(?!:)[^;{}]*)?\{")
ACCESS = re.compile(r"^(?:\s*(?:public|private|protected)\s*:(?!:))+")
NO_MEMBER = re.compile(r"^(?:using|friend|typedef|static_assert|static|constexpr|inline|enum|template"
                       r"|operator|virtual)\b|^~")
TEMPLATE = re.compile(r"^template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*")


def blank(found):
    return re.sub(r"[^\n]", " ", found.group(0))


def closing(text, start):
    """The place of the bracket that closes the `{` at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)


def without_arguments(text):
    """The text without what stands in `<>`."""
    while True:
        shorter = re.sub(r"<[^<>]*>", "", text)
        if shorter == text:
            return text
        text = shorter


def declares_function(statement):
    """Of a statement up to its `{`, `=` or `;`. A pointer to a function is none."""
    before = re.split(r"=(?!=)", statement)[0] if "operator" not in statement else statement
    before = without_arguments(before)
    return "operator" in before or ("(" in before and "(*" not in before.replace(" ", ""))


def names_in(statement):
    """How many members a statement without its blocks declares."""
    statement = ACCESS.sub("", statement).strip()
    if not statement or NO_MEMBER.match(statement) or declares_function(statement):
        return 0
    if re.match(r"^(?:class|struct|union)\s+\w+$", statement):
        return 0  # declared only
    return re.sub(r"\([^()]*\)", "", without_arguments(statement)).count(",") + 1


def count_members(body):
    """The members of a class with this body, those of nested classes included."""
    body = DECORATION.sub(blank, body)
    count, statement, place, depth = 0, "", 0, 0
    while place < len(body):
        char = body[place]
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "{" and depth == 0:
            end = closing(body, place)
            head = TEMPLATE.sub("", ACCESS.sub("", statement).strip())
            follows = body[end + 1:].lstrip()[:1]
            if HEAD.match(head + " {"):
                count += count_members(body[place + 1:end])
                statement = "struct X "  # and its members, if names follow
                if follows == ";":
                    statement = ""
            elif re.match(r"^enum\b", head):
                statement = ""
            elif declares_function(head):
                # In a list of initializers, another one or the body follows.
                statement = statement if follows in (",", "{") else ""
            place = end
        elif char == ";" and depth == 0:
            count += names_in(statement)
            statement = ""
        else:
            statement += char
        place += 1
    return count


def comment_above(lines, number):
    """The comment that ends above the line `number`, counted from 0, as one text."""
    above = []
    while number > 0 and re.match(r"\s*(//|template\b)", lines[number - 1]):
        number -= 1
        above.insert(0, re.sub(r"^\s*/+ ?", "", lines[number]))
    return " ".join(above)


def classes_in(text):
    """(name, number of its line, members, comment above it) for each class that is in no other."""
    code, lines, end = UNREAD.sub(blank, text), text.split("\n"), 0
    heads = DECORATION.sub(blank, code)
    for head in HEAD.finditer(heads):
        if head.start() < end:
            continue
        end = closing(heads, head.end() - 1)
        number = heads.count("\n", 0, head.start())
        yield (head.group(1) or "unnamed", number + 1, count_members(heads[head.end():end]),
               comment_above(lines, number))


def functions_in(text):
    """(number of its first line, lines of its body, comment above it) for each function."""
    code, lines = DECORATION.sub(blank, UNREAD.sub(blank, text)), text.split("\n")
    begin, brackets, skip, body = 0, 0, 0, None
    for found in re.finditer(r"[{}();]", code):
        char, place = found.group(0), found.start()
        if skip:  # in a body, or in braces that open no scope
            skip += {"{": 1, "}": -1}.get(char, 0)
            if skip or body is None:
                continue
            # In a list of initializers, another one or the body follows.
            if code[place + 1:place + 200].lstrip()[:1] not in (",", "{"):
                first = begin + len(code[begin:body]) - len(code[begin:body].lstrip())
                number = code.count("\n", 0, first)
                yield number + 1, code.count("\n", body, place) + 1, comment_above(lines, number)
                begin = place + 1
            body = None
        elif char == "{":
            head = TEMPLATE.sub("", ACCESS.sub("", code[begin:place]).strip())
            if brackets == 0 and (HEAD.match(head + " {") or re.match(r"(inline )?namespace\b|extern\b[ \t]*$", head)):
                begin = place + 1
            else:
                skip = 1
                body = place if brackets == 0 and "(" in head and not head.endswith("=") else None
        elif char in "()":
            brackets += 1 if char == "(" else -1
        elif brackets == 0:
            begin = place + 1


def check_tree(root, paths):
    findings, checked = [], 0
    for path in sorted(paths):
        if not path.endswith(SOURCE) or not path.startswith((*SCOPE, "tests/")):
            continue
        text = checks.read(root, path)
        if text is None:
            continue
        checked += 1
        if (lines := text.count("\n")) > LINES_MAX:
            findings.append(f"{path}:{LINES_MAX + 1}: {lines} lines, more than {LINES_MAX}: split it")
        for line, body, comment in functions_in(text):
            excepted = EXCEPTION.search(comment)
            if body > BODY_MAX and not excepted:
                findings.append(f"{path}:{line}: a function of {body} lines, more than {BODY_MAX}: "
                                "split it, or say in its comment \"exception: \" and the reason")
        if path.startswith("tests/"):
            continue
        for name, line, members, comment in classes_in(text):
            excepted = EXCEPTION.search(comment)
            if members > MEMBERS_MAX and not excepted:
                findings.append(f"{path}:{line}: {name} has {members} data members, more than "
                                f"{MEMBERS_MAX}: split it, or say in its comment \"exception: \" "
                                "and the reason")
            if members <= MEMBERS_MAX and excepted:
                findings.append(f"{path}:{line}: {name} has {members} data members: the exception "
                                "in its comment is not needed")
    return findings, checked


def members(count, begin="int", rest="{0}"):
    return "\n".join(f"  {begin} m{place}_{rest};" for place in range(count))


TOO_MANY = "26 data members"
# What is counted, in line 3: each class has 26 members.
SEEDED = [
    ("verbs/src/a.h", "class A {\n" + members(26) + "\n};"),
    ("verbs/src/b.h", "struct A final : B, public C<int, D> {\n" + members(26, rest="") + "\n};"),
    ("config/src/a.cc", "template <class T>\nclass A {\n public:\n  A() : m0_{1}, m1_{2} {}\n"
     + members(26, "std::map<T, int>") + "\n};"),
    ("engine/src/a.h", "class A {\n" + members(20) + "\n struct B {\n" + members(5) + "\n  };\n"
     "  B b_;\n};"),
    ("engine/src/b.h", "class REMORA_CAPABILITY(\"mutex\") A {\n"
     + members(26, "int", " REMORA_GUARDED_BY(mutex_) = 0") + "\n};"),
    ("engine/src/c.h", "class A {\n" + members(24) + "\n  int a = f(1), b{};\n};"),
    ("engine/src/d.h", "class A {\n" + members(25) + "\n  void (*run_)(int);\n};"),
    ("engine/src/e.h", "class A {\n" + members(25) + "\n  std::function<void(int)> run_{};\n};"),
    ("engine/src/f.h", "class A {\n" + members(25) + "\n  alignas(64) std::atomic<int> a_{};\n};"),
    ("engine/src/g.h", "class A {\n" + members(24) + "\n  struct {\n    int x;\n  } b_[1];\n};"),
    ("engine/src/h.h", "/// exception: yes\nclass A {\n" + members(26) + "\n};"),
    ("metrics/src/a.h", "/// exception: of another class\n\nclass A {\n" + members(26) + "\n};"),
    ("apps/cli/a.cc", "namespace {\nclass A {\n" + members(26) + "\n};\n}"),
]
# What is no member.
FUNCTIONS = """ public:
  explicit A(int a) noexcept(true) : m0_{a}, m1_(a) { f(); }
  A(const A&) = delete;
  ~A() override;
  static constexpr int kMax = 3, kMin = 1;
  static int count_;
  using B = int;
  friend class C;
  enum class D { kOne, kTwo };
  class E;
  [[nodiscard]] std::map<int, int> f() const noexcept REMORA_REQUIRES(mutex_);
  template <typename T, typename U>
  bool g(T t, U u = {}) {
    int a = 0, b = 1;
    return a < b;
  }
  bool operator==(const A&) const = default;
  virtual void h(std::function<void()> done) = 0;
  int c = '{', d = 1'000;  // int e; int f;
"""
CLEAN = [
    ("verbs/src/c.h", "class A {\n" + FUNCTIONS + members(23) + "\n};"),
    ("verbs/src/d.h", "struct A;\nenum class B { kOne };\nstruct C {\n" + members(25) + "\n};"),
    ("verbs/src/e.h", "/// What it is.\n/// exception: a reason\n/// of two lines.\nclass A {\n"
     + members(26) + "\n};"),
    ("verbs/src/f.h", "class A {\n" + members(25) + "\n};\nclass B {\n" + members(25) + "\n};"),
    ("tests/unit/a.cc", "class A {\n" + members(26) + "\n};"),
]
# A seed begins with a line and ends with one.
LONG = "int a;\n" * (LINES_MAX - 1)
NOT_NEEDED = ("verbs/src/g.h", "/// exception: a reason\nclass A {\n" + members(25) + "\n};")


def body(lines, indent=""):
    """A body of so many lines, with what is no end of it."""
    return "{\n" + f"{indent}  if (a) {{ b('}}'); }}  // }}\n" * (lines - 2) + f"{indent}}}"


TOO_LONG = "a function of 71 lines"
# A function of 71 lines, which begins in line 2, 3 or 4.
LONG_FUNCTIONS = [
    ("engine/src/a.cc", "int f(int a) " + body(71)),
    ("engine/src/b.cc", "namespace a::b {\nint A::f() const noexcept(true) " + body(71) + "\n}"),
    ("engine/src/a.h", "class A final : public B<int> {\n public:\n  int f() override " + body(71, "  ") + "\n};"),
    ("verbs/src/a.cc", "A::A(int a)\n    : B{a}, m_{{1, 2}}, n_(3), o_{f()} " + body(71)),
    ("verbs/src/b.cc", "template <typename T>\nauto f(T t, int u = {}) -> std::vector<int> " + body(71)),
    ("tests/unit/a.cc", "TEST_F(A, DoesIt) " + body(71)),
    ("tests/unit/b.cc", "/// exception: of another function\n\nbool operator()(int a) " + body(71)),
    ("apps/cli/a.cc", "extern \"C\" {\nvoid f(void (*done)(int)) " + body(71) + "\n}"),
]
SHORT_FUNCTIONS = [
    ("engine/src/c.cc", "int f() " + body(70)),
    ("engine/src/d.cc", "/// exception: a table\nint f() " + body(71)),
    ("engine/src/e.cc", "const std::map<int, int> kA = " + body(90) + ";"),
    ("engine/src/f.cc", "INSTANTIATE(All, A, Values(B" + body(90) + "));"),
    ("engine/src/g.cc", "class A {\n" + ("  int f() " + body(10) + "\n") * 9 + "};"),
    ("tests/unit/c.cc", "namespace {\n" + ("void f() " + body(40) + "\n") * 3 + "}"),
]


def self_test():
    seeds = [checks.Seed(path, f"#pragma once\n{text}\n", TOO_MANY, range(2, 5))
             for path, text in SEEDED]
    seeds += [checks.Seed(path, f"#pragma once\n{text}\n") for path, text in CLEAN]
    seeds += [checks.Seed(path, f"#pragma once\n{text}\n", TOO_LONG, range(2, 5))
              for path, text in LONG_FUNCTIONS]
    seeds += [checks.Seed(path, f"#pragma once\n{text}\n") for path, text in SHORT_FUNCTIONS]
    seeds.append(checks.Seed(*NOT_NEEDED, "is not needed", range(2, 3)))
    seeds += [checks.Seed(f"{folder}/a.cc", f"#pragma once\n{LONG}{more}", expected,
                          range(LINES_MAX + 1, LINES_MAX + 2))
              for folder in ("engine/src", "tests/unit")
              for more, expected in (("", ""), ("int b;\n", "501 lines"))]
    return checks.self_test("classes", check_tree, seeds)


if __name__ == "__main__":
    sys.exit(checks.main("classes", checks.parser(__doc__).parse_args(), check_tree, self_test))
