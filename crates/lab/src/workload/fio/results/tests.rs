//! Results of fio 3.33, shortened, and what is not one.

use super::*;

/// `fio --output-format=json+ --group_reporting=1` of a job file with two groups.
const PRINTED: &str = include_str!("two-groups.txt");

fn figures(printed: &str) -> Vec<(String, f64)> {
    Results::parse(printed).expect(printed).figures()
}

fn group(of_read: &str, more: &str) -> String {
    format!(
        r#"{{"jobname":"a","read":{{"bw_bytes":1000000,"iops":250.5,"total_ios":9,"runtime":4{of_read}}}{more}}}"#
    )
}

fn printed(groups: &[String]) -> String {
    format!(
        "{{\"fio version\":\"fio-3.33\",\"jobs\":[{}]}}",
        groups.join(",")
    )
}

#[test]
fn the_figures_of_one_group_are_those_of_a_workload() {
    let all = printed(&[group(
        r#","clat_ns":{"percentile":{"50.000000":1500,"99.000000":9000},"bins":{"1000":4,"9000":5}}"#,
        r#","sync":{"lat_ns":{"percentile":{"50.000000":2000000}}}"#,
    )]);
    let expected = [
        ("throughput", 1.0),
        ("operations", 250.5),
        ("read, median", 1.5),
        ("read, 99th percentile", 9.0),
        ("sync, median", 2000.0),
    ];
    assert_eq!(
        figures(&all),
        expected.map(|(name, value)| (name.to_owned(), value))
    );
    let taken = Results::parse(&all).expect("it is one").taken();
    assert_eq!(taken.latencies, [("read".into(), vec![(1.0, 4), (9.0, 5)])]);
}

#[test]
fn groups_are_named_and_all_together_are_weighed_by_their_time() {
    let figures: BTreeMap<String, f64> = figures(PRINTED).into_iter().collect();
    let of = |name: &str| *figures.get(name).expect(name);
    assert_eq!(of("reader-one: throughput"), 69.905066);
    assert_eq!(of("reader-one: read, median"), 56.576);
    assert_eq!(of("w: operations"), 250.980392);
    assert_eq!(of("w: sync, 99th percentile"), 274_726.912);
    // 3 MiB in 30 ms and 1020 ms.
    let all = (f64::from(3 << 20) / 1.05) / 1e6;
    assert!(
        (of("throughput") - all).abs() < 1e-4,
        "{}",
        of("throughput")
    );
    assert!(!figures.contains_key("read, median"));
    let two = printed(&[group("", ""), group("", "")]);
    assert!(
        self::figures(&two)
            .iter()
            .any(|(name, _)| name == "a #2: throughput")
    );
}

#[test]
fn messages_around_the_results_are_skipped() {
    let text = format!(
        "note: {{a}} note\n{}\nfio: bye {{\n",
        printed(&[group("", "")])
    );
    assert_eq!(figures(&text).len(), 2);
}

#[test]
fn what_is_no_result_is_explained() {
    let idle = r#"{"jobname":"a","read":{"bw_bytes":0,"iops":0.0,"total_ios":0,"runtime":0}}"#;
    let short = r#"{"jobname":"a","read":{"bw_bytes":0,"iops":0.0,"total_ios":1,"runtime":0}}"#;
    let many: Vec<String> = (0..=MAX_GROUPS).map(|_| group("", "")).collect();
    for (text, expected) in [
        (String::new(), "no results"),
        ("fio: no such option\n".into(), "no results"),
        ("{".into(), "no results"),
        ("{}".into(), "no results"),
        ("[".repeat(100_000), "no results"),
        (format!("{{\"jobs\":{}", "[".repeat(100_000)), "no results"),
        (printed(&[]), "no I/O"),
        (printed(&[idle.into()]), "no I/O"),
        (printed(&[short.into()]), "less than a millisecond"),
        (
            printed(&[group("", ""), idle.into()]),
            "less than a millisecond",
        ),
        (
            printed(&[group("", r#","error":28"#)]),
            "job 'a' failed: No space left",
        ),
        (
            printed(&[group("", r#","error":-9223372036854775808"#)]),
            "job 'a' failed",
        ),
        (printed(&[group(r#","bw_bytes":1"#, "")]), "no results"),
        (
            printed(&[group(r#","clat_ns":{"bins":{"-1":1}}"#, "")]),
            "no results",
        ),
        (
            printed(&[group(
                r#","clat_ns":{"percentile":{"50.000000":1e999}}"#,
                "",
            )]),
            "no results",
        ),
        (printed(&[r#"{"jobname":7}"#.into()]), "no results"),
        (
            printed(&[
                r#"{"jobname":"a","read":{"bw_bytes":-1,"iops":1,"total_ios":1,"runtime":1}}"#
                    .into(),
            ]),
            "no results",
        ),
        (
            printed(&[
                r#"{"jobname":"a","read":{"bw_bytes":1,"iops":-1,"total_ios":1,"runtime":1}}"#
                    .into(),
            ]),
            "millisecond",
        ),
        (printed(&many), "more than 256 groups"),
    ] {
        let error = Results::parse(&text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{text:.200}: {error}");
    }
    let hostile = group("", "").replace("\"a\"", r#""\u001b[31m\u202e/..""#);
    let two = printed(&[hostile.clone(), hostile]);
    assert!(
        figures(&two)
            .iter()
            .all(|(name, _)| name.is_ascii() && !name.contains('\x1b'))
    );
}
