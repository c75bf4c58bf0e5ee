//! Tests of the commands of the lab as users and scripts run them, by `throughline lab`: arguments in;
//! output, exit codes, records and reports out. Figures are not judged.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "the time of these programs is not measured"
)]

mod bisect;
mod compared;
mod founding;
mod gated;
mod generated;
mod reported;
mod runs;
mod workloads;

use throughline_testkit::commands as common;
