//! Tests do the same in each run: what they generate comes from seeds, by `throughline_testkit::seed`. Read
//! from the sources.

use throughline_testkit::sources;

/// Calls that take a seed from the system. What needs one does so in the code of a crate, by `RandomState`.
const UNSEEDED: &[&str] = &[
    "fastrand::Rng::new()",
    " Rng::new()",
    "fastrand::bool(",
    "fastrand::shuffle(",
    "fastrand::u32(",
    "fastrand::u64(",
    "fastrand::usize(",
    "shuttle::check_pct(",
    "shuttle::check_random(",
    "TestRunner::default()",
    "TestRunner::new(ProptestConfig",
];

/// Whether each `proptest!` of a text takes its settings from the test kit, or has a seed of its own.
fn is_seeded(text: &str) -> bool {
    let blocks = text.split("proptest! {\n").skip(1);
    let settings = |block: &str| {
        let settings = block.split("#[test]").next().unwrap_or_default();
        ["config(", "RngSeed::Fixed("].map(|seed| settings.contains(seed))
    };
    blocks.map(settings).all(|seeded| seeded.contains(&true))
}

#[test]
fn what_tests_generate_has_a_seed() {
    let root = sources::root();
    let mut files = sources::files(&root.join("crates"), &["rs"]);
    files.extend(sources::files(&root.join("testing"), &["rs"]));
    assert!(files.len() > 300, "only {} files", files.len());
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with(file!())) {
        let text = sources::text(file);
        wrong.extend((!is_seeded(&text)).then(|| format!("{}: proptest!", file.display())));
        let calls = UNSEEDED.iter().filter(|call| text.contains(**call));
        wrong.extend(calls.map(|call| format!("{}: {call}", file.display())));
    }
    assert!(wrong.is_empty(), "without a seed:\n{}", wrong.join("\n"));
}

#[test]
fn a_block_without_a_seed_is_found() {
    assert!(is_seeded(
        "proptest! {\n #![proptest_config(config(3))]\n #[test] fn f() {}"
    ));
    assert!(!is_seeded("proptest! {\n #[test] fn f() { config(3) }"));
    let own = "proptest! {\n #![proptest_config(ProptestConfig::with_cases(3))]\n #[test]";
    assert!(!is_seeded(&own.replace("config(", "cases(")));
}
