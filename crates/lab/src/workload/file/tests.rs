//! Workload files: parsed, rejected, and written.

use super::*;

const LEAST: &str = "pattern = \"random-read\"\nblock = \"4k\"\nsize = \"64M\"\n";

#[test]
fn the_example_says_what_holds_anyway() {
    let example = Workload::parse(EXAMPLE).expect("the example is one");
    let least = format!("{LEAST}targets = [\"image:\", \"memory:\"]\n");
    assert_eq!(example, Workload::parse(&least).expect("it is one"));
    // Every key in it, with the value shown, must be valid and equal to the default.
    let uncommented: String = EXAMPLE
        .lines()
        .filter(|line| !line.starts_with("# runtime") && !line.starts_with("# read-share"))
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(example, Workload::parse(&uncommented).expect(&uncommented));
}

#[test]
fn a_workload_file_round_trips() {
    let text = r#"
        name = "mine"
        pattern = "random-mixed"
        read-share = 70
        block = 8192
        size = "1G"
        offset = "1M"
        threads = 4
        queue-depth = 8
        files = "per-thread"
        cache = "direct"
        sync = "every 32"
        runtime = "2m"
        time-based = true
        cold = false
        seed = 7
        warm-up = 0
        rounds = 40
        targets = ["memory:", "dir:/mnt?name=the disk's"]
    "#;
    let workload = Workload::parse(text).expect("it is one");
    assert_eq!(workload.direction, Direction::Mixed(70));
    assert_eq!(workload.runtime, Some(Duration::from_secs(120)));
    assert_eq!(workload.sync, SyncPolicy::Every(32));
    assert_eq!((workload.workers(), workload.files()), (32, 4));
    assert_eq!(workload.part_bytes(), 256 << 20);
    let again = workload.to_toml();
    assert_eq!(workload, Workload::parse(&again).expect(&again));
}

#[test]
fn errors_name_line_key_and_what_is_allowed() {
    for (line, expected) in [
        ("blok = 1", "unknown field `blok`"),
        ("sync = \"sometimes\"", "every N"),
        ("sync = \"every 0\"", "every N"),
        ("sync = \"every\"", "every N"),
        ("sync = \"every 1 2\"", "every N"),
        ("sync = \"dsync\"", "nothing is written"),
        ("offset = \"4q\"", "K, M, G"),
        ("offset = 1.5", "whole bytes"),
        ("offset = -1", "line 4"),
        ("offset = \"99999999999P\"", "too large"),
        ("offset = 9223372036854775807", "beyond 1024P"),
        ("threads = 0", "1 to 1024"),
        ("threads = 99999999999", "line 4"),
        ("threads = 32769", "1 to 1024"),
        (
            "threads = 4294967295\nqueue-depth = 4294967295",
            "1 to 1024",
        ),
        ("threads = 33\nqueue-depth = 32", "at most 1024"),
        ("queue-depth = 0", "at least 1"),
        ("read-share = 50", "only a mixed"),
        ("read-share = 300", "line 4"),
        ("files = \"many\"", "`one`"),
        ("cache = \"warm\"", "`buffered`"),
        ("cache = \"direct\"\noffset = 100", "multiple of 512"),
        ("layout = \"empty\"", "cannot be read"),
        ("runtime = 0", "longer than 0"),
        ("runtime = nan", "longer than 0"),
        ("runtime = inf", "longer than 0"),
        ("runtime = \"1e400s\"", "longer than 0"),
        ("runtime = \"ten\"", "10s"),
        ("time-based = true", "needs a runtime"),
        ("rounds = 0", "1 to 100000"),
        ("warm-up = 200000", "0 to 100000"),
        ("seed = -1", "line 4"),
        ("name = \"../x\"", "letters, digits"),
        ("name = \"\"", "letters, digits"),
        ("targets = [\"disk\"]", "KIND:WHAT"),
        ("targets = \"memory:\"", "line 4"),
        ("targets = [[[[", "line 4"),
    ] {
        let error = Workload::parse(&format!("{LEAST}{line}\n")).expect_err(line);
        let error = error.to_string();
        assert!(error.contains(expected), "{line}: {error}");
        assert!(error.contains("line "), "{line}: {error}");
        let key = line.split(' ').next().unwrap_or_default();
        let named = [key, "queue-depth", "size", "offset"];
        assert!(
            named.iter().any(|key| error.contains(key)),
            "{line}: {error}"
        );
    }
}

#[test]
fn hostile_counts_are_errors_that_name_the_range() {
    const LEAST: &str = "pattern = \"random-mixed\"\nblock = \"4k\"\nsize = \"64M\"\n";
    for (line, expected) in [
        ("threads = -1", "not below 0"),
        ("threads = 0", "1 to 1024"),
        ("threads = 1000000000", "1 to 1024"),
        ("threads = 10000000000", "1 to 1024"),
        ("threads = 9223372036854775807", "1 to 1024"),
        ("queue-depth = 10000000000", "at most 1024"),
        ("rounds = 10000000000", "1 to 100000"),
        ("warm-up = -9", "not below 0"),
        ("read-share = 300", "0 to 100"),
        ("read-share = -1", "not below 0"),
    ] {
        let error = Workload::parse(&format!("{LEAST}{line}\n")).expect_err(line);
        let error = error.to_string();
        assert!(
            error.contains(expected) && error.contains("line 4"),
            "{line}: {error}"
        );
    }
}

#[test]
fn hostile_sizes_are_errors() {
    for (block, size, expected) in [
        ("0", "64M", "block"),
        ("1G", "64G", "block"),
        ("4k", "0", "size"),
        ("4k", "4095", "size"),
        ("4k", "16383P", "size"),
        ("4k", "18446744073709551615", "size"),
        ("4k", "99999999999999999999999", "too large"),
    ] {
        let text = format!("pattern = \"random-read\"\nblock = \"{block}\"\nsize = \"{size}\"\n");
        let error = Workload::parse(&text).expect_err(&text).to_string();
        assert!(
            error.contains(expected) && error.contains("line"),
            "{text}: {error}"
        );
    }
    let buffers = "pattern = \"random-read\"\nblock = \"256M\"\nsize = \"1T\"\nqueue-depth = 9\n";
    assert!(Workload::parse(buffers).is_err());
    assert!(
        Workload::parse("")
            .expect_err("empty")
            .to_string()
            .contains("pattern")
    );
}
