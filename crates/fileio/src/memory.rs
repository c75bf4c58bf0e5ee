//! How much memory the process may use.
