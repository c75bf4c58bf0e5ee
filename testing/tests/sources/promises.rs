//! The table of `docs/guarantees.md` names a judge, which exists, for each promise of that page, and the
//! table of `ARCHITECTURE.md` each test binary of this package.

use std::collections::BTreeSet;

use throughline_testkit::sources;

/// The rows of the table under this heading, without its head, as cells.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let text = sources::text(&sources::root().join(page));
    let (_, section) = text.split_once(heading).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    })
    .collect()
}

/// What stands in backticks.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn each_promise_has_a_judge() {
    let root = sources::root();
    let page = sources::text(&root.join("docs/guarantees.md"));
    let promises = page
        .lines()
        .filter_map(|line| line.split_once(". ")?.0.parse().ok());
    let promises: BTreeSet<u32> = promises.collect();
    assert!(promises.len() >= 24, "{promises:?}");
    let mut judged = BTreeSet::new();
    for row in rows(
        "docs/guarantees.md",
        "\n## Which test judges which promise\n",
    ) {
        let [number, promise, judges, _] = &row[..] else {
            panic!("{row:?}");
        };
        for judge in names(judges) {
            assert!(root.join(judge).exists(), "{promise}: {judge}");
            judged.insert(number.parse::<u32>().expect("a number"));
        }
    }
    assert_eq!(judged, promises);
}

/// Each module with tests of each test binary of this package.
#[test]
fn each_module_of_tests_is_described() {
    let rows = rows("ARCHITECTURE.md", "\n## Tests\n");
    let described: BTreeSet<&str> = rows.iter().flat_map(|row| names(&row[0])).collect();
    let folder = sources::root().join("testing/tests");
    let mut modules = 0;
    for path in sources::files(&folder, &["rs"]) {
        let below = path.strip_prefix(&folder).expect("a file below the folder");
        let mut parts = below.iter().map(|part| part.to_str().expect("a name"));
        let (Some(binary), Some(name)) = (parts.next(), parts.next()) else {
            panic!("{below:?}");
        };
        let has_tests = sources::text(&path).contains("#[test]");
        if has_tests && name != "main.rs" && folder.join(binary).join("main.rs").exists() {
            let name = name.trim_end_matches(".rs");
            assert!(described.contains(name), "{binary}: {name}");
            modules += 1;
        }
    }
    assert!(modules >= 30, "{modules}");
}
