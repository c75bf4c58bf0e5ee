//! What sources, tests and pages promise about themselves.

mod layers;
mod methods;
mod promises;
mod prose;
mod repeatable;
