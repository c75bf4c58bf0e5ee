//! Objects over HTTP.

mod reading;
mod secrets;
mod together;
