//! `lab bisect` and `lab step` on generated repositories with computed figures: nothing is timed.

mod asked;
mod cut_short;
mod found;
mod repository;
