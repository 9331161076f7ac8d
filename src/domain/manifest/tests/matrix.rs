//! Rows that a matrix makes of jobs with templates, as transcripts.

use super::*;
use crate::domain::manifest::with_tables;

const PRODUCTS: &str = "sku,name,seconds\nA-1,red mug,5\nB-2,\"blue \"\"deep\"\" bowl\",10\n";

fn table(name: &str) -> Result<Vec<u8>, String> {
    match name {
        "products.csv" => Ok(PRODUCTS.into()),
        "products.json" => Ok(br#"[{"sku": "A-1"}, {"sku": "B-2"}]"#.into()),
        "ragged.csv" => Ok(b"sku,name\nA-1\n".into()),
        "twice.csv" => Ok(b"sku,sku\nA-1,B\n".into()),
        "empty.csv" => Ok(b"sku,name\n".into()),
        _ => Err(format!("failed to read the table {name}: not found")),
    }
}

/// `line:column {fields} (combination)` of each row, and what is wrong.
fn read(text: &str) -> Vec<String> {
    read_within(text, &limits())
}

fn read_within(text: &str, limits: &Limits) -> Vec<String> {
    let opened = super::super::open("m.json", text.as_bytes(), limits, &mut table);
    let manifest = match opened {
        Ok(manifest) => manifest,
        Err(refused) => return refused.problems.iter().map(|problem| format!("refused {problem}")).collect(),
    };
    let told_with_combination = |row: ReadRow| {
        let combination = match &row {
            ReadRow::Good(row) => row.combination.as_deref().map(|shown| format!(" ({shown})")),
            _ => None,
        };
        told(row).into_iter().map(move |line| format!("{line}{}", combination.as_deref().unwrap_or_default()))
    };
    manifest.flat_map(told_with_combination).collect()
}

#[test]
fn a_job_is_made_for_each_combination_of_the_axes_that_it_names() {
    let text = r#"{"matrix": {"product": "products.csv", "locale": ["en", "de"]},
 "jobs": [
  {"id": "still-{{ product.sku }}", "prompt": "a {{ product.name }}", "duration": "{{ product.seconds }}"},
  {"id": "voice-{{ product.sku }}-{{ locale }}", "text": "{{ product.name | upper }}", "meta": {"in": "{{locale}}"}},
  {"id": "logo", "prompt": "{not} a template"}]}"#;
    assert_eq!(
        read(text),
        [
            r#"3:3 {"id":"still-A-1","options":{"duration":5},"prompt":"a red mug"} (product.sku "A-1")"#,
            r#"4:3 {"id":"voice-A-1-en","meta":{"in":"en"},"text":"RED MUG"} (product.sku "A-1", locale "en")"#,
            r#"5:3 {"id":"logo","prompt":"{not} a template"}"#,
            r#"4:3 {"id":"voice-A-1-de","meta":{"in":"de"},"text":"RED MUG"} (product.sku "A-1", locale "de")"#,
            r#"3:3 {"id":"still-B-2","options":{"duration":10},"prompt":"a blue \"deep\" bowl"} (product.sku "B-2")"#,
            r#"4:3 {"id":"voice-B-2-en","meta":{"in":"en"},"text":"BLUE \"DEEP\" BOWL"} (product.sku "B-2", locale "en")"#,
            r#"4:3 {"id":"voice-B-2-de","meta":{"in":"de"},"text":"BLUE \"DEEP\" BOWL"} (product.sku "B-2", locale "de")"#,
        ]
    );
}

#[test]
fn axes_go_on_together_leave_out_and_bring_in_combinations() {
    let ids = |rules: &str| {
        let text = format!(
            r#"{{"matrix": {{"size": ["s", "l"], "price": [1, 2], "locale": ["en", "de"], {rules}}},
 "jobs": [{{"id": "{{{{ size }}}}{{{{ price }}}}{{{{ locale }}}}", "prompt": "x"}}]}}"#
        );
        let read = super::super::open("m.json", text.as_bytes(), &limits(), &mut table).unwrap();
        let id = |row| match row {
            ReadRow::Good(row) => row.id.unwrap(),
            other => panic!("{other:?}"),
        };
        read.map(id).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(r#""zip": []"#), "s1en s1de s2en s2de l1en l1de l2en l2de");
    assert_eq!(ids(r#""zip": ["size", "price"]"#), "s1en s1de l2en l2de");
    assert_eq!(ids(r#""zip": ["size", "price", "locale"]"#), "s1en l2de");
    assert_eq!(ids(r#""exclude": [{"size": "s", "locale": "de"}, {"price": "2"}]"#), "s1en l1en l1de");
    assert_eq!(
        ids(
            r#""zip": ["price", "locale"], "include": [{"size": "xl", "price": 1, "locale": "fr"}, {"size": "s"}]"#
        ),
        "s1en s2de l1en l2de xl1fr"
    );
}

#[test]
fn a_table_is_excluded_by_a_part_of_its_rows() {
    let text = r#"{"matrix": {"product": "products.csv", "exclude": [{"product": {"seconds": 5}}]},
        "jobs": [{"prompt": "{{ product.sku }}"}]}"#;
    assert_eq!(read(text), [r#"2:18 {"prompt":"B-2"} (product.sku "B-2")"#]);
}

#[test]
fn defaults_may_be_templates_too() {
    let text = r#"{"defaults": {"meta": {"sku": "{{ product.sku }}"}, "count": "{{ n }}"}, "matrix": {"product": "products.json", "n": [2]},
        "jobs": [{"prompt": "a"}]}"#;
    assert_eq!(
        read(text),
        [
            r#"2:18 {"count":2,"meta":{"sku":"A-1"},"prompt":"a"} (product.sku "A-1", n 2)"#,
            r#"2:18 {"count":2,"meta":{"sku":"B-2"},"prompt":"a"} (product.sku "B-2", n 2)"#,
        ]
    );
}

#[test]
fn a_default_that_a_job_replaces_makes_no_further_rows_of_it() {
    let matrix = r#""matrix": {"p": ["a", "b"], "n": [1, 2]}"#;
    let rows = |defaults: &str, jobs: &str| {
        let text = format!("{{{matrix}, \"defaults\": {defaults}, \"jobs\": [{jobs}]}}");
        let rows = read(&text);
        rows.into_iter().map(|row| row.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let defaults = r#"{"prompt": "sound of {{ p }}", "duration": "{{ n }}s", "meta": {"n": "{{ n }}"}}"#;
    let own = r#""options": {"duration": "5s"}, "meta": {"n": "x", "k": 1}"#;
    assert_eq!(
        rows(
            defaults,
            &format!(
                "{{{own}}}, {{\"prompt\": \"jingle\", {own}}}, {{\"prompt\": \"part {{{{ n }}}}\", {own}}}"
            )
        ),
        [
            r#"{"meta":{"k":1,"n":"x"},"options":{"duration":"5s"},"prompt":"sound of a"} (p "a")"#,
            r#"{"meta":{"k":1,"n":"x"},"options":{"duration":"5s"},"prompt":"jingle"}"#,
            r#"{"meta":{"k":1,"n":"x"},"options":{"duration":"5s"},"prompt":"part 1"} (n 1)"#,
            r#"{"meta":{"k":1,"n":"x"},"options":{"duration":"5s"},"prompt":"part 2"} (n 2)"#,
            r#"{"meta":{"k":1,"n":"x"},"options":{"duration":"5s"},"prompt":"sound of b"} (p "b")"#,
        ]
    );
    // What a job leaves as it is, or may leave, is the default's; null takes it away.
    let defaults = r#"{"prompt": "sound of {{ p }}", "meta": {"n": "{{ n }}"}}"#;
    let count = |job: &str| rows(defaults, job).len();
    assert_eq!(count(r#"{"meta": {"n": null}, "prompt": "the {{ p }}"}, {}"#), 2 + 4);
    assert_eq!(count(r#"{"prompt": "{{ p }}", "meta": {"n": ""}}"#), 4);
    assert_eq!(count(r#"{"prompt": "{% if n > 1 %}jingle{% endif %}", "meta": {"n": 1}}"#), 4);
    assert_eq!(count(r#"{"prompt": "jingle {{ n }}", "meta": {"n": 1}}, {}"#), 2 + 4);
    // A combination without the axis of a default still makes the jobs that do not take it.
    let text = r#"{"matrix": {"p": ["a"], "n": [1], "include": [{"n": 2}]}, "defaults": {"prompt": "of {{ p }}"},
        "jobs": [{"prompt": "jingle {{ n }}"}, {"meta": {"k": 1}}]}"#;
    assert_eq!(
        read(text),
        [
            r#"2:18 {"prompt":"jingle 1"} (n 1)"#,
            r#"2:48 {"meta":{"k":1},"prompt":"of a"} (p "a")"#,
            r#"2:18 {"prompt":"jingle 2"} (n 2)"#,
        ]
    );
    let unused =
        r#"{"matrix": {"p": ["a"]}, "defaults": {"prompt": "{{ p }}"}, "jobs": [{"prompt": "jingle"}]}"#;
    assert!(read(unused)[0].contains("only defaults name the axis \"p\""), "{:?}", read(unused));
}

#[test]
fn without_a_matrix_braces_are_text() {
    let rows = read(r#"[{"id": "a-{{ b }}", "prompt": "{% raw"}]"#);
    assert_eq!(rows, [r#"1:2 {"id":"a-{{ b }}","prompt":"{% raw"}"#]);
}

#[test]
fn what_is_wrong_with_a_template_is_said_where_it_stands_and_for_which_combination() {
    let rows = read(
        r#"{"matrix": {"product": [{"sku": "A", "name": "mug"}, {"sku": "B"}]},
 "jobs": [{"id": "{{ product.sku }}", "prompt": "a {{ product.name }}"}]}"#,
    );
    assert_eq!(
        rows,
        [
            r#"2:11 {"id":"A","prompt":"a mug"} (product.name "mug")"#,
            r#"bad 2:49: prompt: "product.name" is not defined for this combination (with product.sku "B") (hint: names: product.sku)"#,
        ]
    );
    let rows = read(r#"{"matrix": {"n": [0, "many"]}, "jobs": [{"prompt": "a", "count": "{{ n }}"}]}"#);
    assert_eq!(
        rows,
        [
            r#"bad 1:66: count: found "0", expected a whole number from 1 to 1000 (with n 0)"#,
            r#"bad 1:66: count: found "many", expected a whole number from 1 to 1000 (with n "many")"#,
        ]
    );
    let rows = read(r#"{"matrix": {"n": [1]}, "jobs": [{"prompt": "{{ 'x' * 100000000 }}{{ n }}"}]}"#);
    assert_eq!(rows.len(), 1);
    assert!(rows[0].contains("too many steps") || rows[0].contains("too large"), "{rows:?}");
}

/// What comes of a prompt that is filled with `p` from a list of texts, `n` from a number and `product` from an object.
fn prompt(template: &str) -> String {
    let text = serde_json::json!({
        "matrix": {"p": ["a"], "n": [2], "product": [{"name": "mug", "tags": ["red", "big"], "price": 5}]},
        "jobs": [
            {"prompt": template},
            {"prompt": "{{ p }}{{ n }}{{ product.name }}"},
        ]
    });
    read_within(&text.to_string(), &Limits::default()).swap_remove(0)
}

#[test]
fn a_template_that_could_run_for_ever_is_refused_at_once() {
    let times = |times: usize, text: &str| text.repeat(times);
    let deep = [
        // Nested as deep as the fuel allows: dropping it would overflow the stack.
        "{% set n=namespace(a=[1]) %}{% for i in range(30000) %}{% set n.a=[n.a] %}{% endfor %}{{p}}"
            .to_owned(),
        format!("{{% set a=[p] %}}{}", times(33_000, "{% set a=[a] %}")),
        format!("{{% set a=p|list %}}{}", times(33_000, "{% set a=a|reverse %}")),
        format!("{{% set a=p|list %}}{}", times(33_000, "{% set a=a[0:] %}")),
        format!("{{{{ p{} }}}}", times(33_000, ".x")),
        format!("{{{{ p{} }}}}", times(33_000, " ~ p")),
        format!("{{{{ p{} }}}}", times(33_000, "|upper")),
        format!("{{% if p %}}{}{{% endif %}}", times(33_000, "{% elif p %}")),
        format!("{{{{ {}p }}}}", times(33_000, "not ")),
        "{% for x in [p] recursive %}{{ loop([[x]]) }}{% endfor %}".to_owned(),
        // Twice as much with each step.
        format!("{{% set a = [1,2,3,4] %}}{}{{{{ a|length }}}}", times(60, "{% set a = a + a %}")),
        format!(
            "{{% set a=[p] %}}{{% set b=[p] %}}{}{{{{ a == b }}}}",
            times(40, "{% set a=[a,a] %}{% set b=[b,b] %}")
        ),
        format!("{{% set a=[p] %}}{}{{{{ a ~ \"\" }}}}", times(10, "{% set a=[a,a,a,a,a,a,a,a] %}")),
        format!("{{% set a={{1: p}} %}}{}{{{{ a }}}}", times(40, "{% set a={1: a, 2: a} %}")),
        format!("{{% set a=p|list %}}{}{{{{ a }}}}", times(40, "{% set a=(a, a) %}")),
        format!(
            "{{% set a=p|list %}}{}{{{{ a }}}}",
            times(40, "{% set a=[0, 0]|map('default', a, true)|list %}")
        ),
        format!("{{% set a=p|list %}}{}{{{{ a }}}}", times(40, "{% set a=a|zip(a)|list %}")),
        format!("{{% set a=p|list %}}{}{{{{ a }}}}", times(40, "{% set a=a|chain(a) %}")),
        format!(
            "{{% set a=product.tags %}}{}{{{{ a }}}}",
            times(40, "{% with b = a %}{% set a = a + b %}{% endwith %}")
        ),
        "{% for x in product.tags|items recursive %}{{ loop(x + x) }}{% endfor %}".to_owned(),
        "{{ product.tags * 100000000 }}".to_owned(),
        "{{ [1, 2] * 100000000 == 3 }}".to_owned(),
        "{{ product == product }}".to_owned(),
        "{{ p|list|map('batch', 2)|list }}{{ range(*product.tags) }}".to_owned(),
    ];
    for template in deep {
        let begin: String = template.chars().take(100).collect();
        let found = prompt(&template);
        assert!(found.starts_with("refused 1:"), "{begin}: {found}");
        let is_named = found.contains("too many steps") || found.contains("unknown name \"namespace\"");
        assert!(is_named || found.contains("recursion limits"), "{begin}: {found}");
    }
}

#[test]
fn the_longest_templates_fit_on_the_stack() {
    for (begin, step, end) in [
        ("{{ p", "|upper", " }}"),
        ("{{ p", " ~ p", " }}"),
        ("{% if p == 1 %}", "{% elif p %}x", "{% endif %}"),
        ("{% set a = p|list %}", "{% set a = a[0:] %}", "{{ a|length }}"),
        ("{% set a = p|list %}", "{% set a = a|reverse %}", "{{ a|list }}"),
    ] {
        let template = |steps: usize| format!("{begin}{}{end}", step.repeat(steps));
        let is_too_long = |steps: usize| prompt(&template(steps)).contains("words and signs");
        let (mut longest, mut too_long) = (1, 1_000);
        assert!(!is_too_long(longest) && is_too_long(too_long), "{begin}");
        while longest + 1 < too_long {
            let middle = usize::midpoint(longest, too_long);
            *(if is_too_long(middle) { &mut too_long } else { &mut longest }) = middle;
        }
        let found = prompt(&template(longest));
        assert!(found.starts_with("1:"), "{begin} {longest}: {found}");
    }
    let found = prompt(&format!("{{{{ product{} }}}}", ".name".repeat(450)));
    assert!(found.contains("is not defined"), "{found}");
}

#[test]
fn templates_may_do_what_stays_as_small_as_the_axes_are() {
    for (template, expected) in [
        ("{{ product.name | upper }}", "MUG"),
        ("{% if p in ['a', 'b'] %}yes{% else %}no{% endif %}", "yes"),
        ("{{ {'a': 'Jetzt', 'b': 'Now'}[p] }}", "Jetzt"),
        ("{{ [p, product.name, n] | join(', ') }}", "a, mug, 2"),
        ("{{ product.tags | map('upper') | join(' ') }}", "RED BIG"),
        ("{{ n + product.price }} {{ n * product.price }} {{ n|int + 1 }}", "7 10 3"),
        ("{{ 'a ' + product.name + ' in ' + p }}", "a mug in a"),
        (
            "{% for tag in product.tags %}{{ loop.index + 1 }}{{ tag + p }}{% if not loop.last %}, {% endif %}{% endfor %}",
            "2reda, 3biga",
        ),
        ("{% for tag in product.tags + ['new'] %}{{ tag }} {% endfor %}", "red big new"),
        ("{% for name, value in {'x': 1}|items %}{{ name }}{{ value * 2 }}{% endfor %}", "x2"),
        ("{% set price = product.price * 2 %}{{ price * 2 }}{{ product.tags|length * 2 }}", "204"),
        (
            "{{ 'red' in product.tags and product.tags[0] == 'red' and product.tags == ['red', 'big'] }}",
            "True",
        ),
        ("{{ product.size | default('large') }}{{ product.tags | first | capitalize }}", "largeRed"),
        ("{% set text %}x{{ p }}{% endset %}{{ text * 2 }}{{ text ~ text }}", "xaxaxaxa"),
    ] {
        let found = prompt(template);
        assert!(
            found.contains(&format!("\"prompt\":{}", serde_json::json!(expected))),
            "{template}: {found}"
        );
    }
    let found = prompt("{% for i in range(20000) %}{{ i }}{% endfor %}{{ p }}");
    assert!(found.contains("cannot be filled") || found.contains("too many steps"), "{found}");
}

#[test]
fn an_id_names_one_row() {
    let rows = read(
        r#"{"matrix": {"locale": ["en", "de"]},
 "jobs": [{"id": "a", "prompt": "{{ locale }}"}]}"#,
    );
    assert_eq!(
        rows,
        [
            r#"2:11 {"id":"a","prompt":"en"} (locale "en")"#,
            r#"bad 2:18: id: "a" is the id of the row at line 2 with locale "en", too; an id names one row (with locale "de") (hint: name the axes in the id that tell the rows apart)"#,
        ]
    );
}

#[test]
fn a_matrix_that_cannot_be_read_refuses_the_file() {
    let check = |matrix: &str, job: &str, expected: &str| {
        let text = format!("{{\"matrix\": {matrix},\n\"jobs\": [{{\"prompt\": \"{job}\"}}]}}");
        assert_eq!(read(&text), [format!("refused {expected}")]);
    };
    check(r#"["a"]"#, "", r#"1:12: matrix: found ["a"], expected an object of axes"#);
    check(
        "{}",
        "",
        r#"1:12: matrix: there is no axis, expected at least one: "locale": ["en", "de"], or a table "product": "products.csv""#,
    );
    check(r#"{"a": []}"#, "{{ a }}", "1:18: matrix.a: there is no value, expected at least one");
    check(
        r#"{"a": 5}"#,
        "{{ a }}",
        r#"1:18: matrix.a: found 5, expected a list of values, or the name of a table, such as "products.csv""#,
    );
    check(
        r#"{"a-b": [1]}"#,
        "",
        "1:13: matrix.a-b: an axis is named by letters, digits and underscores, a letter first, as templates name it",
    );
    check(r#"{"a": [1, 1]}"#, "{{ a }}", "1:18: matrix.a: the value 1 is given twice; keep one");
    check(
        r#"{"excludes": [1]}"#,
        "",
        r#"1:13: matrix.excludes: did you mean "exclude"? An axis must have another name"#,
    );
    check(
        r#"{"a": [1], "zip": ["b"]}"#,
        "{{ a }}",
        r#"1:30: matrix.zip: unknown axis "b", expected one of a"#,
    );
    check(
        r#"{"a": [1], "b": [1, 2], "zip": ["a", "b"]}"#,
        "{{ a }}{{ b }}",
        "1:43: matrix.zip: a has 1 values and b has 2; axes that go on together have as many",
    );
    check(r#"{"a": [1], "exclude": [{"a": 2}]}"#, "{{ a }}", "1:34: matrix.exclude: no value of a is 2");
    check(
        r#"{"a": [1], "exclude": [{"a": 1}]}"#,
        "{{ a }}",
        "2:9: matrix: the matrix makes no row: every combination is excluded",
    );
    check(r#"{"a": "gone.csv"}"#, "{{ a }}", "1:18: matrix.a: failed to read the table gone.csv: not found");
    check(
        r#"{"a": "ragged.csv"}"#,
        "{{ a }}",
        "1:18: matrix.a: ragged.csv:2:1: found 1 cell, expected 2, one for each column (hint: an empty cell needs its separator too)",
    );
    check(
        r#"{"a": "twice.csv"}"#,
        "{{ a }}",
        "1:18: matrix.a: twice.csv:1:5: sku: the column appears twice; keep one",
    );
    check(r#"{"a": "empty.csv"}"#, "{{ a }}", "1:18: matrix.a: there is no value, expected at least one");
    check(
        r#"{"locale": [1]}"#,
        "{{ locael }}",
        r#"2:21: prompt: unknown name "locael"; did you mean "locale"?"#,
    );
    // It could be a list, but that is not what is wrong with it.
    check(
        r#"{"locale": [1]}"#,
        "{{ locael.x * 2 }}",
        r#"2:21: prompt: unknown name "locael"; did you mean "locale"?"#,
    );
    check(
        r#"{"a": [1]}"#,
        "{{ now() }}",
        r#"2:21: prompt: unknown name "now", expected an axis of the matrix: a"#,
    );
    check(
        r#"{"a": [1]}"#,
        "{{ a",
        r#"2:21: prompt: "{{ a" is not a valid template: unexpected end of input, expected end of variable block"#,
    );
    check(
        r#"{"a": [1], "b": [1]}"#,
        "{{ a }}",
        r#"2:9: matrix.b: no job names the axis "b"; write {{ b }} in a job, or remove it"#,
    );
}

#[test]
fn more_rows_than_the_limit_have_to_be_asked_for() {
    let values: Vec<String> = (0..101).map(|value| value.to_string()).collect();
    let document = |limit: &str| {
        let values = values.join(",");
        format!(
            r#"{{"matrix": {{"a": [{values}], "b": [{values}]}}{limit}, "jobs": [{{"prompt": "{{{{ a }}}}{{{{ b }}}}"}}]}}"#
        )
    };
    let refused = read(&document(""));
    assert_eq!(refused.len(), 1);
    assert!(
        refused[0].ends_with(r#"matrix: the matrix makes more than 10000 rows (hint: to make them all, raise the limit beside "matrix": "matrix_max": N)"#),
        "{refused:?}"
    );
    assert_eq!(read(&document(r#", "matrix_max": 10201"#)).len(), 10_201);
    let wrong = read(&document(r#", "matrix_max": 0"#));
    assert!(
        wrong[0].ends_with("matrix_max: found 0, expected a whole number of rows, at least 1"),
        "{wrong:?}"
    );
}

#[test]
fn a_manifest_with_its_tables_means_the_same_and_keeps_its_places() {
    let text = "{\"matrix\": {\"product\": \"products.csv\"},\n \"jobs\": [{\"prompt\": \"{{ product.name }}\", \"count\": \"{{ product.sku }}\"}]}\n";
    let whole = with_tables(text, &mut table, &limits()).unwrap().unwrap();
    assert!(whole.starts_with(text.trim_end().strip_suffix('}').unwrap()), "{whole}");
    let opened = super::super::open("m.json", whole.as_bytes(), &limits(), &mut |_| {
        Err("it is not asked for".to_owned())
    });
    let rows: Vec<String> = opened.unwrap().flat_map(told).collect();
    assert_eq!(rows, read(text));
    assert_eq!(
        rows[0],
        r#"bad 2:53: count: found "A-1", expected a whole number from 1 to 1000 (with product.sku "A-1")"#
    );
    assert_eq!(with_tables(&whole, &mut table, &limits()), Ok(None), "it has them");
    let marked = format!("\u{feff}{text}");
    assert_eq!(
        with_tables(&marked, &mut table, &limits()),
        Ok(Some(whole)),
        "a byte order mark says nothing"
    );
    for other in ["[1]", "{\"jobs\": []}", "{\"matrix\": {\"a\": [1]}, \"jobs\": []}", "{", "prompt\nx\n"] {
        assert_eq!(with_tables(other, &mut table, &limits()), Ok(None), "{other}");
    }
    let gone = with_tables("{\"matrix\": {\"a\": \"gone.csv\"}}", &mut table, &limits());
    assert_eq!(gone.unwrap_err().to_string(), "1:18: matrix.a: failed to read the table gone.csv: not found");
}

#[test]
fn another_value_of_an_axis_changes_no_other_row() {
    let rows = |locales: &str| {
        read(&format!(
            r#"{{"matrix": {{"locale": [{locales}]}}, "jobs": [{{"id": "{{{{ locale }}}}", "prompt": "hello {{{{ locale }}}}"}}]}}"#
        ))
    };
    let without_place = |rows: Vec<String>| -> Vec<String> {
        rows.iter().map(|row| row.split_once(' ').unwrap().1.to_owned()).collect()
    };
    let (before, after) = (without_place(rows(r#""en", "de""#)), without_place(rows(r#""fr", "en", "de""#)));
    assert_eq!(before, after[1..]);
}
