//! `explain --kernel`.

use std::os::unix::process::CommandExt;

use serde_json::Value;

use super::ext3::{Loop, report_1};
use super::{MIB, accounts, count, kernel_is_out_of_reach, str};
use crate::common::{fails, is_root, run, throughline};

#[test]
fn any_commands_exit_code_is_passed_on() {
    if kernel_is_out_of_reach() {
        return;
    }
    assert_eq!(
        run(["explain", "--kernel", "--", "sh", "-c", "exit 7"]).code,
        Some(7)
    );
    assert_eq!(
        run(["explain", "--kernel", "--", "sh", "-c", "kill -9 $$"]).code,
        Some(137)
    );
    fails(
        ["explain", "--kernel", "no-such-command-here"],
        127,
        "No such file",
    );
    fails(
        ["explain", "--kernel", "/etc/passwd"],
        126,
        "Permission denied",
    );
    fails(
        ["explain", "--kernel", "--device", "/proc", "true"],
        125,
        "block device",
    );
}

#[test]
fn another_user_is_advised_to_be_root() {
    if !is_root() {
        fails(["explain", "--kernel", "true"], 125, "sudo");
        return;
    }
    match throughline()
        .args(["explain", "--kernel", "true"])
        .uid(65534)
        .gid(65534)
        .output()
    {
        Ok(output) => {
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            assert!(
                String::from_utf8_lossy(&output.stderr).contains("sudo"),
                "{output:?}"
            );
        }
        Err(error) => {
            throughline_testkit::left_out!(
                "another user cannot run the binary in its directory: {error}"
            )
        }
    }
}

#[test]
fn the_kernels_ext3_is_explained() {
    if kernel_is_out_of_reach() {
        return;
    }
    let Some(ext3) = Loop::new(true) else { return };
    let words = report_1(&ext3.file());
    // Events of other programs take no room in the buffer.
    let file = ext3.file();
    let mut arguments = vec!["--kernel", "--buffer", "16M", "--device", str(&file), "--"];
    arguments.extend(words.iter().map(String::as_str));
    let accounts = accounts(&arguments);
    let name = ext3.device.node().trim_start_matches("/dev/");
    let named = |account: &&Value| account["series"] == format!("{name} (kernel)");
    let account = accounts
        .iter()
        .find(named)
        .unwrap_or_else(|| panic!("{name}: {accounts:?}"));
    assert_eq!(account["lost_events"], 0);
    assert_eq!(account["direct"]["bytes"], 4 * MIB);
    assert!(count(account, "asked", "write").1 >= 4 * MIB);
    assert!(
        count(account, "bios", "write data").1 >= 4 * MIB,
        "{account}"
    );
    assert!(
        count(account, "requests", "write").1 >= 4 * MIB,
        "{account}"
    );
    assert!(
        account["latency"]["write"]["count"].as_u64() > Some(0),
        "{account}"
    );
    assert!(
        account["first_submit"]["count"].as_u64() > Some(0),
        "{account}"
    );
    // Unlike in the report, there are fewer bios than pages.
    let by_command = account["submitted_by"]["the command"].as_u64().unwrap();
    assert!(by_command < 1024, "{account}");
    assert_eq!(ext3.file().metadata().unwrap().len(), 4 * MIB + (48 << 10));
}
