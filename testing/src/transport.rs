//! Which transport the mounts of tests use.
//!
//! `THROUGHLINE_TEST_TRANSPORT` is a mount option that every mount of [`Mounted`](crate::Mounted) gets before
//! its own. `./dev test --all` switches io_uring on in the kernel, so that all mounts use it, and then
//! repeats the tests of mounts with `without=io_uring`. The mounts of the CLI's tests get the option too.

/// The mount option that chooses io_uring.
pub const IO_URING: &str = "with=io_uring";
/// The mount option that chooses `/dev/fuse`.
pub const DEV_FUSE: &str = "without=io_uring";
const VARIABLE: &str = "THROUGHLINE_TEST_TRANSPORT";
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the kernel lets FUSE servers use io_uring. If not, prints what is skipped and why.
///
/// # Panics
/// With `THROUGHLINE_REQUIRE_ALL=1`, if the kernel has it and it is switched off.
pub fn io_uring_is_on() -> bool {
    match std::fs::read_to_string(SWITCH) {
        Ok(text) if text.trim() == "Y" => true,
        Ok(_) => {
            throughline_testkit::missing!("FUSE over io_uring is off (as root: echo Y > {SWITCH})");
            false
        }
        Err(_) => {
            throughline_testkit::left_out!("this kernel has no FUSE over io_uring");
            false
        }
    }
}

/// The mount option of the environment.
pub fn chosen() -> Option<String> {
    std::env::var(VARIABLE).ok()
}

/// Whether the mounts have `small_files`: the kernel opens and closes files without a request.
pub fn is_small_files() -> bool {
    chosen().is_some_and(|options| options == "small_files")
}

/// These mount options, after those of the environment.
pub(crate) fn with_transport(options: &str) -> String {
    match chosen() {
        Some(first) => format!("{first},{options}"),
        None => options.to_owned(),
    }
}
