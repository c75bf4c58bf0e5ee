//! What is planted in small sources, and what is not.

use crate::draw::Urn;
use crate::points::{self, Point};
use crate::{error_place, rewrite};

fn points_of(text: &str) -> Vec<Point> {
    points::parse(text)
        .expect("the source of a test is Rust")
        .points
}

/// Original, kind and mutated text of all points in the body of a function.
fn bugs(body: &str) -> Vec<(String, &'static str, String)> {
    let text = format!("fn tested() {{ {body} }}");
    let points = points_of(&text).into_iter();
    points
        .map(|point| (text[point.at.clone()].to_owned(), point.kind, point.mutated))
        .collect()
}

/// Checks that there is this bug, and no other.
#[track_caller]
fn only(body: &str, original: &str, kind: &'static str, mutated: &str) {
    let expected = (original.to_owned(), kind, mutated.to_owned());
    assert_eq!(bugs(body), [expected], "{body}");
}

#[test]
fn operators_change() {
    only("let x = a < b;", "a < b", "operator", "(a) <= (b)");
    only("let x = a <= b;", "a <= b", "operator", "(a) < (b)");
    only("let x = a > b;", "a > b", "operator", "(a) >= (b)");
    only("let x = a >= b;", "a >= b", "operator", "(a) > (b)");
    only("let x = a == b;", "a == b", "operator", "(a) != (b)");
    only("let x = a != b;", "a != b", "operator", "(a) == (b)");
    only("let x = a && b;", "a && b", "operator", "(a) || (b)");
    only("let x = a || b;", "a || b", "operator", "(a) && (b)");
}

#[test]
fn terms_and_negations_are_left_out() {
    only("let x = a + b;", "a + b", "term left out", "a");
    only("let x = a - b;", "a - b", "term left out", "a");
    only("let x = a | b;", "a | b", "term left out", "a");
    only("let x = a % b;", "a % b", "term left out", "a");
    only("let x = !a;", "!a", "negation left out", "a");
}

#[test]
fn ones_become_zero() {
    only("let x = a + 1;", "a + 1", "one off", "a + 0");
    only("let x = a - 1u64;", "a - 1u64", "one off", "a + 0");
    let (original, mutated) = ("a.saturating_sub(1)", "a.saturating_sub(0)");
    only("let x = a.saturating_sub(1);", original, "one off", mutated);
    assert_eq!(bugs("let x = a.saturating_sub(2);"), []);
}

#[test]
fn calls_change_into_their_opposites() {
    only("let x = a.min(b);", "a.min(b)", "opposite", "a.max(b)");
    only(
        "let x = max(a, b);",
        "max(a, b)",
        "opposite",
        "std::cmp::min(a, b)",
    );
    only("let x = i.any(f);", "i.any(f)", "opposite", "i.all(f)");
    only(
        "let x = a.div_ceil(b);",
        "a.div_ceil(b)",
        "rounding",
        "(a) / (b)",
    );
}

#[test]
fn statements_are_left_out() {
    only("self.mark();", "self.mark();", "call left out", "");
    only("flush()?;", "flush()?;", "call left out", "");
    only("self.x = y;", "self.x = y;", "assignment left out", "");
    only("x += y;", "x += y;", "assignment left out", "");
    // Without this statement, the variable might have no value.
    assert_eq!(bugs("x = y;"), []);
    // A result.
    assert_eq!(bugs("self.mark()"), []);
}

#[test]
fn what_changes_no_result_stays() {
    let statements = [
        "drop(guard);",
        "a.lock();",
        "a.unlock_all();",
        "list.reserve(a + b);",
        "let x = Vec::with_capacity(a + b);",
        "tracing::warn!(\"{}\", a + b);",
        "debug_assert!(a < b);",
        "let x = [0; A + B];",
        "let x: [u8; A + B] = y;",
        "let x = f::<{ A + B }>;",
        "let x = const { A + B };",
        "const X: u32 = A + B;",
        "match x { 1..=2 => {} _ => {} }",
        "#[cfg(target_os = \"linux\")] self.mark();",
        "if cfg!(debug_assertions) { self.mark(); }",
    ];
    for statement in statements {
        assert_eq!(bugs(statement), [], "{statement}");
    }
    only("unblock();", "unblock();", "call left out", "");
}

#[test]
fn a_chain_with_let_keeps_its_operators() {
    only(
        "if let Some(x) = y && a < b {}",
        "a < b",
        "operator",
        "(a) <= (b)",
    );
}

#[test]
fn only_code_that_runs_has_points() {
    let items = [
        "const fn f() -> u32 { A + B }",
        "const X: u32 = A + B;",
        "static X: u32 = A + B;",
        "enum E { A = 1 + 2 }",
        "#[cfg(test)] fn f() { g(); }",
        "#[cfg(test)] mod tests { fn f() { g(); } }",
        "#[test] fn f() { g(); }",
        "impl fmt::Debug for A { fn fmt(&self) { g(); } }",
        "impl Display for A { fn fmt(&self) { g(); } }",
        "macro_rules! m { () => { fn f() { g(); } } }",
        "trait T { fn f(); }",
    ];
    for item in items {
        assert!(points_of(item).is_empty(), "{item}");
    }
    let items = [
        "impl Drop for A { fn drop(&mut self) { g(); } }",
        "trait T { fn f() { g(); } }",
        "mod inner { fn f() { g(); } }",
    ];
    for item in items {
        assert_eq!(points_of(item).len(), 1, "{item}");
    }
}

#[test]
fn modules_of_tests_are_not_followed() {
    let parsed = points::parse("mod a; pub mod b; #[cfg(test)] mod tests;").expect("Rust");
    assert_eq!(parsed.modules, ["a", "b"]);
}

#[test]
fn a_nested_function_belongs_to_the_outer_one() {
    let points = points_of("fn a() { fn b() { c(); } d(); } fn e() { f(); }");
    let of: Vec<_> = points.iter().map(|point| point.function).collect();
    assert_eq!(of.len(), 3);
    assert!(of[0] == of[1] && of[1] != of[2], "{of:?}");
}

#[test]
fn the_text_decides_at_run_time() {
    let text = "fn a() {\n    b();\n}\nfn c() -> bool {\n    d\n        < e\n}\n";
    let points = points_of(text);
    let (planted, lines) = rewrite::plant(text, &[(7, &points[1]), (8, &points[0])]);
    let expected = "fn a() {\n    if !crate::planted_here(8) { b(); }\n}\nfn c() -> bool {\n    \
        (if crate::planted_here(7) { (d) <= (e) } else { d\n        < e })\n}\n";
    assert_eq!(planted, expected);
    assert_eq!(lines, [5..=6, 2..=2]);
    assert!(syn::parse_file(&format!("{planted}{}", rewrite::SWITCH)).is_ok());
}

#[test]
fn a_seed_repeats_its_draws() {
    let text: String = (0..50)
        .map(|name| format!("fn f{name}() {{ a(); b(); }}\n"))
        .collect();
    let draws = |mut seed| {
        let points = points_of(&text)
            .into_iter()
            .map(|point| (0, point))
            .collect();
        let mut urn = Urn::new(points, &mut seed);
        let all = std::iter::from_fn(move || urn.draw());
        all.map(|(_, point)| point.at.start).collect::<Vec<_>>()
    };
    assert_eq!(draws(1), draws(1));
    assert_ne!(draws(1), draws(2));
    assert_eq!(draws(1).len(), 50, "one of each function");
}

#[test]
fn errors_of_the_compiler_are_found() {
    let message = "crates/ext/src/a.rs:12:5: error[E0308]: mismatched types: expected `u8`";
    assert_eq!(error_place(message), Some(("crates/ext/src/a.rs", 12)));
    assert_eq!(
        error_place("crates/ext/src/a.rs:12:5: warning: unused"),
        None
    );
    assert_eq!(error_place("error: could not compile `a`"), None);
}
