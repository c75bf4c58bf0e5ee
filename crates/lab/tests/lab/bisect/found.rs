//! Results of bisections, and messages when there is none.

use super::repository::{Planned, Repository, git_is_missing, line, ran};
use crate::common::Ran;

/// The culprit was found, and only the logs are left.
#[track_caller]
pub(super) fn assert_found(repository: &Repository, ran: &Ran, culprit: usize) {
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    let answer = ran.json();
    assert_eq!(answer["verdict"], "commit", "{answer}");
    assert_eq!(
        repository.place(&answer["suspects"][0]["id"]),
        culprit,
        "{answer}"
    );
    assert!(
        answer["confidence"].as_f64().unwrap() >= 0.99 - 1e-9,
        "{answer}"
    );
    repository.assert_untouched();
}

#[test]
fn a_planted_slowdown_among_64_commits_is_found() {
    if git_is_missing() {
        return;
    }
    let soak = std::env::var_os("THROUGHLINE_SOAK").is_some();
    let seeds = if soak { 20 } else { 2 };
    for seed in 0..seeds {
        let culprit = 1 + (seed * 29 % 63) as usize;
        let repository = Repository::of(&line(64, culprit));
        let ran = ran(&mut repository.bisect(seed, &[]));
        assert_found(&repository, &ran, culprit);
        let answer = ran.json();
        assert_eq!(answer["commits"], 63);
        assert_size(&answer, repository.change(culprit));
        let trial = &answer["trial"];
        println!(
            "seed {seed}, commit {culprit}: {} pairs, {}",
            trial["pairs"], trial["level"]
        );
    }
}

/// The interval of the size contains the planted change and is as narrow as the number of pairs allows.
#[track_caller]
fn assert_size(answer: &serde_json::Value, planted: f64) {
    let trial = &answer["trial"];
    let level = |end: &str| trial["level"][end].as_f64().unwrap();
    let (value, low, high) = (level("value"), level("low"), level("high"));
    assert!(low < planted && planted < high, "{planted}: {trial}");
    let reach = (high - low) / 2.0 / (1.0 - value).abs();
    assert!(
        reach <= 0.2 || (trial["pairs"] == 60 && reach < 0.3),
        "{reach}: {trial}"
    );
    assert!((level("confidence") - 0.99).abs() < 1e-9, "{trial}");
}

#[test]
fn no_more_is_measured_for_the_size_than_is_allowed() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(8, 5));
    let pairs = |most: &str| {
        let ran = ran(&mut repository.bisect(12, &["--size-pairs", most]));
        assert_found(&repository, &ran, 5);
        let trial = ran.json()["trial"].clone();
        assert!(trial["level"]["high"].as_f64().unwrap() < 0.99, "{trial}");
        trial["pairs"].as_u64().unwrap()
    };
    let few = pairs("0");
    assert!(few < 30, "{few}");
    let some = (few + 4).to_string();
    assert_eq!(pairs(&some).to_string(), some);
    assert!(pairs("200") > few + 4);
}

#[test]
fn the_table_is_for_people_and_the_same_again() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(8, 3));
    let mut command = repository.lab("bisect");
    command
        .args(["--good", &repository.ids[0], "--bad", "main"])
        .args(["--build", "true", "--measure"])
        .arg(repository.measure(1));
    let ran = ran(&mut command);
    let (text, short) = (ran.text(), &repository.ids[3][..7]);
    assert_eq!(ran.code, Some(0), "{text}{}", ran.stderr);
    assert!(
        text.starts_with(&format!("{short} is the commit that made it worse")),
        "{text}"
    );
    for wanted in [
        "ratio to good",
        "cv",
        "<- this one",
        "change number 3",
        "good end",
        "bad end",
        "at least 99.0",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    // The second time, the result is already known.
    let again = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&again.stdout), text);
    assert!(String::from_utf8_lossy(&again.stderr).contains("measurements of an earlier run"));
}

#[test]
fn commits_that_do_not_build_are_skipped() {
    if git_is_missing() {
        return;
    }
    let mut commits = line(24, 5);
    // The middle and its neighbours.
    for commit in &mut commits[10..14] {
        commit.broken = true;
    }
    let repository = Repository::of(&commits);
    let ran = ran(&mut repository.bisect(3, &[]));
    assert_found(&repository, &ran, 5);
    let steps = ran.json()["steps"].as_array().unwrap().clone();
    let skipped = steps
        .iter()
        .filter(|step| step["mark"] == "skipped")
        .count();
    assert!((1..=4).contains(&skipped), "{steps:?}");
}

#[test]
fn broken_commits_beside_the_culprit_stay_suspects() {
    if git_is_missing() {
        return;
    }
    let mut commits = line(12, 6);
    commits[5].broken = true;
    let repository = Repository::of(&commits);
    let ran = ran(&mut repository.bisect(4, &[]));
    assert_eq!(ran.code, Some(3), "{}{}", ran.text(), ran.stderr);
    let answer = ran.json();
    let suspects = answer["suspects"].as_array().unwrap();
    let places: Vec<usize> = suspects
        .iter()
        .map(|one| repository.place(&one["id"]))
        .collect();
    assert_eq!(places, [5, 6], "{answer}");
    let steps = answer["steps"].as_array().unwrap();
    let why = steps.iter().find(|step| step["mark"] == "skipped").unwrap()["why"]
        .as_str()
        .unwrap();
    assert!(why.contains("the build ended with 1"), "{why}");
    repository.assert_untouched();
}

/// 0 - 1 - 2 - 3 ----- 8 - 9, and in parallel to 3, from 2: 4 - 5 - 6 - 7, merged by 8.
fn merged(culprit: usize) -> Vec<Planned> {
    let mut commits = line(10, 99);
    let slow = commits[0].speed * 0.955;
    let slows = |place: usize| match culprit {
        3 => place == 3 || place >= 8,
        from => place >= from,
    };
    for (place, commit) in commits.iter_mut().enumerate() {
        if slows(place) {
            commit.speed = slow;
        }
    }
    commits[4].parents = vec![2];
    commits[8].parents = vec![3, 7];
    commits
}

#[test]
fn a_culprit_on_either_side_of_a_merge_is_found_and_the_merge_itself() {
    if git_is_missing() {
        return;
    }
    for culprit in [3, 6, 8] {
        let repository = Repository::of(&merged(culprit));
        let ran = ran(&mut repository.bisect(5, &[]));
        assert_found(&repository, &ran, culprit);
    }
    let repository = Repository::of(&merged(6));
    let ran = ran(&mut repository.bisect(5, &["--first-parent"]));
    assert_found(&repository, &ran, 8);
}

#[test]
fn of_two_slowdowns_the_larger_is_found() {
    if git_is_missing() {
        return;
    }
    let mut commits = line(16, 99);
    for (place, commit) in commits.iter_mut().enumerate() {
        commit.speed *= if place >= 4 { 0.97 } else { 1.0 } * if place >= 11 { 0.92 } else { 1.0 };
    }
    let repository = Repository::of(&commits);
    let ran = ran(&mut repository.bisect(6, &[]));
    assert_found(&repository, &ran, 11);
}

#[test]
fn less_is_better_of_times() {
    if git_is_missing() {
        return;
    }
    let mut commits = line(8, 99);
    for commit in &mut commits[6..] {
        commit.speed *= 1.045;
    }
    let repository = Repository::of(&commits);
    let found = ran(&mut repository.bisect(7, &["--better", "lower"]));
    assert_found(&repository, &found, 6);
    // With the opposite direction, the bad end is the better one.
    let wrong = ran(&mut repository.bisect(7, &[]));
    assert_eq!(wrong.code, Some(2), "{}", wrong.text());
    assert!(
        wrong.stderr.contains("reverse --better"),
        "{}",
        wrong.stderr
    );
    assert_eq!(wrong.json()["verdict"], "better");
    repository.assert_untouched();
}

#[test]
fn without_a_difference_it_says_what_could_have_been_seen() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(6, 99));
    for (more, verdict) in [
        (["--threshold", "3"], "no-difference"),
        (["--max-pairs", "14"], "not-enough"),
    ] {
        let ran = ran(&mut repository.bisect(8, &more));
        assert_eq!(ran.code, Some(4), "{}{}", ran.text(), ran.stderr);
        let answer = ran.json();
        assert_eq!(answer["verdict"], verdict, "{answer}");
        let seen = answer["trial"]["smallest_seen_percent"].as_f64().unwrap();
        assert!((0.3..5.0).contains(&seen), "{answer}");
        repository.assert_untouched();
    }
}
