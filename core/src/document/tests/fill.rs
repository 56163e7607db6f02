use std::collections::BTreeMap;

use super::{FillError, fill, yaml};
use crate::document::tree::{Content, Node};

fn with(text: &str, values: &[(&str, &str)]) -> Result<String, FillError> {
    let values: BTreeMap<String, String> = (values.iter())
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    fill(text, &values)
}

/// The field's content, `number` in front of one.
fn field(text: &str, name: &str) -> String {
    let root = yaml::read(text).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    match root.get(name).map(|node| &node.content) {
        Some(Content::Number { written, .. }) => format!("number {written}"),
        Some(Content::Bool { written, .. }) => format!("boolean {written}"),
        Some(Content::Text(text)) => text.clone(),
        Some(Content::List(items)) => items.iter().filter_map(Node::written).collect::<Vec<_>>().join("|"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn placeholders_are_filled_where_they_are_named_and_nothing_else_is_touched() {
    let text = "# $N\nimage: PLACEHOLDER_IMAGE\ncommand: [sh, -c, \"echo $PATH ${N}x $N $NODES Pier PLACEHOLDER_OTHER\", ${N}]\n";
    assert_eq!(
        with(text, &[("IMAGE", "a:1"), ("N", "4")]).unwrap(),
        "# $N\nimage: \"a:1\"\ncommand: [sh, -c, \"echo $PATH 4x 4 $NODES Pier PLACEHOLDER_OTHER\", 4]\n"
    );
    assert_eq!(with("PLACEHOLDER_A", &[("PLACEHOLDER_A", "x")]).unwrap(), "\"x\"");
    assert_eq!(with("é$N${N", &[("N", "ü")]).unwrap(), "\"éü${N\"");
    assert_eq!(
        with("{\"a\": $N, \"b\": \"$N\"}", &[("N", "4")]).unwrap(),
        "{\"a\": 4, \"b\": \"4\"}"
    );
    assert_eq!(
        with("a: &x !!str $N # c\n$N: *x", &[("N", "4")]).unwrap(),
        "a: &x !!str 4 # c\n4: *x"
    );
}

#[test]
fn no_value_becomes_more_than_the_scalar_that_it_stands_in() {
    let places = [
        "a: $X\nb: 1\n",
        "a: before $X\n  behind\nb: 1\n",
        "a: '$X'\nb: 1\n",
        "a: \"$X\"\nb: 1\n",
        "{ a: $X, b: 1 }",
        "a: |\n  before $X\n  behind\nb: 1\n",
        "a: [one, $X]\nb: 1\n",
    ];
    let values = [
        "x: y",
        "x\nb: 2",
        "x\r\nb: 2",
        "x\rb: 2",
        "- x",
        "# x",
        "x # y",
        "]",
        "}, b: 2",
        "\"",
        "'",
        "\\n",
        "*x",
        "&x y",
        "!!int 4",
        "null",
        "",
        " ",
        "%",
        "@",
        "`",
        "|",
        "> x",
        "$X",
        "${X}",
        "\u{2028}b: 2",
        "\tx",
        "---\nb: 2",
        "é\u{1f600}",
    ];
    for place in places {
        let before = field(place, "a");
        for value in values {
            let filled = with(place, &[("X", value)]).unwrap_or_else(|error| panic!("{place:?} {value:?}: {error}"));
            assert_eq!(field(&filled, "b"), "number 1", "{filled}");
            let lines = value.replace("\r\n", "\n").replace('\r', "\n");
            let wanted = before.replace("$X", if place.contains('|') { &lines } else { value });
            assert_eq!(field(&filled, "a"), wanted, "{place:?} {value:?}: {filled}");
            let at = |text: &str| yaml::read(text).unwrap().entry("b").unwrap().key_at.line;
            if !place.contains('|') {
                assert_eq!(at(&filled), at(place), "lines stay where they are: {filled}");
            }
        }
    }
}

#[test]
fn a_number_stays_one_unless_it_is_quoted() {
    for (text, value, wanted) in [
        ("a: $X", "0.1", "number 0.1"),
        ("a: 1$X", "0", "number 10"),
        ("a: $X", "true", "boolean true"),
        ("a: '$X'", "0.1", "0.1"),
        ("a: $X", "no", "no"),
    ] {
        assert_eq!(
            field(&with(text, &[("X", value)]).unwrap(), "a"),
            wanted,
            "{text} {value}"
        );
    }
}

#[test]
fn what_a_block_would_read_otherwise_is_refused() {
    for (text, value) in [("a: |\n  $X\n  b\n", "  x"), ("a: >\n  b $X\n  c\n", "x\ny")] {
        let error = with(text, &[("X", value)]).unwrap_err().to_string();
        assert!(error.contains("line 2; write that text in double quotes"), "{error}");
    }
}

#[test]
fn a_value_that_is_nowhere_wanted_is_a_slip_and_hears_what_is() {
    let error = |text, names: &[(&str, &str)]| with(text, names).unwrap_err().to_string();
    assert_eq!(
        error("a: $B ${D} PLACEHOLDER_E\n# $F\n", &[("B", "1"), ("C", "1")]),
        "the document has no placeholder named C; it has B, D, E"
    );
    assert_eq!(
        error("a: b", &[("C", "1")]),
        "the document has no placeholder named C; it has none"
    );
    let broken = error("a: [$C", &[("C", "1")]);
    assert!(broken.contains("this is not YAML"), "{broken}");
}
