//! [`Scaling`]: I/O rates of many cores, with and without a counter that all of them write. Founding report
//! 2.
//!
//! The law: a core does one I/O in `op_ns`. Cores that share nothing do `n / op_ns` together. With the
//! counter, each I/O also writes the counter's cache line twice. The line is in one core's cache at a time;
//! each write from another core fetches it in `line_ns`, and the fetches of all cores queue up. So `n` cores
//! do at most `1 / (2 line_ns)` whatever `n` is, and at most `n / (op_ns + 2 line_ns)`. The law takes the
//! smaller one, an upper bound for any queue: a real line under contention is slower, so the computed gain of
//! removing the counter is a lower bound.
//!
//! With one core the line stays in its cache, and writing it costs nothing in this law.

/// Measurements on one core, from which the law computes many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// Nanoseconds per I/O on one core, without the counter.
    pub op_ns: f64,
    /// Nanoseconds to transfer a cache line from one core to another.
    pub line_ns: f64,
}

/// Writes to the counter's line per I/O: one before it, one after it.
const WRITES_PER_OP: f64 = 2.0;

/// Numbers of cores for which the law is printed.
pub const MANY_CORES: &[u32] = &[2, 4, 8, 16, 32, 64, 128];

impl Scaling {
    /// I/Os per second of `cores` cores that share nothing.
    pub fn without_counter(&self, cores: u32) -> f64 {
        f64::from(cores) * 1e9 / self.op_ns
    }

    /// I/Os per second of `cores` cores that share one counter.
    pub fn with_counter(&self, cores: u32) -> f64 {
        if cores <= 1 {
            return self.without_counter(cores);
        }
        let lines_ns = WRITES_PER_OP * self.line_ns;
        let each_alone = f64::from(cores) * 1e9 / (self.op_ns + lines_ns);
        each_alone.min(1e9 / lines_ns)
    }

    /// Speedup of `cores` cores without the counter.
    pub fn gain(&self, cores: u32) -> f64 {
        self.without_counter(cores) / self.with_counter(cores)
    }

    /// The smallest number of cores with a gain of at least `wanted`; `None` if 4096 do not reach it.
    pub fn cores_for_gain(&self, wanted: f64) -> Option<u32> {
        (1..=4096).find(|cores| self.gain(*cores) >= wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Scaling = Scaling {
        op_ns: 400.0,
        line_ns: 50.0,
    };

    #[test]
    fn cores_that_share_nothing_add_up() {
        assert_eq!(HERE.without_counter(1), 2.5e6);
        assert_eq!(HERE.without_counter(128), 128.0 * 2.5e6);
    }

    #[test]
    fn the_line_is_a_wall() {
        assert_eq!(HERE.with_counter(1), HERE.without_counter(1));
        assert_eq!(HERE.with_counter(2), 2e9 / 500.0);
        assert_eq!(HERE.with_counter(64), 1e7);
        assert_eq!(HERE.with_counter(64), HERE.with_counter(128));
        assert_eq!(HERE.gain(2), 1.25);
        assert_eq!(HERE.gain(32), 8.0);
        let gains: Vec<f64> = MANY_CORES.iter().map(|cores| HERE.gain(*cores)).collect();
        assert!(gains.is_sorted());
        assert_eq!(HERE.cores_for_gain(3.6), Some(15));
    }

    /// The reporter's figures: 9.6 M I/Os per second without the counter, 2.5 M with it.
    #[test]
    fn the_reporters_wall_is_a_line_of_200_ns() {
        let theirs = Scaling {
            op_ns: 32e9 / 9.6e6,
            line_ns: 200.0,
        };
        assert!((theirs.with_counter(32) - 2.5e6).abs() < 1.0);
        assert!((theirs.gain(32) - 3.84).abs() < 1e-6);
    }

    #[test]
    fn a_line_that_costs_nothing_gains_nothing() {
        let free = Scaling {
            line_ns: 0.0,
            ..HERE
        };
        assert_eq!(free.gain(128), 1.0);
        assert_eq!(free.cores_for_gain(1.1), None);
    }
}
