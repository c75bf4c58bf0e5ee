//! The balanced rate: how fast each writer may dirty memory, so that all writers together match the device's
//! bandwidth.
//!
//! Writers are not counted. If each may dirty `task_rate` and all together dirtied `dirty_rate`, there are
//! `dirty_rate / task_rate` writers, and each one's share is `bandwidth / dirty_rate × task_rate`. One window
//! gives only a rough estimate, so the rate follows it in small steps, and only if the position agrees: it
//! rises only below the setpoint and falls only above it. So noise in the bandwidth does not move a rate that
//! holds dirty memory at the setpoint.

/// Fraction of the difference that one window corrects.
const STEP: f64 = 1.0 / 8.0;

/// Minimum rate of a writer in bytes per second: one page every two seconds.
const MIN_BYTES_PER_S: f64 = 2048.0;

/// Measurements of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// [`pos_ratio`](crate::throttle::law::Position::pos_ratio) at its end.
    pub(crate) pos_ratio: f64,
    /// The device's smoothed bandwidth.
    pub(crate) bandwidth_bytes_per_s: f64,
    /// Rate at which all writers together dirtied memory.
    pub(crate) dirtied_bytes_per_s: f64,
}

/// See the module. In bytes per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    bytes_per_s: f64,
    /// The rate that the previous window suggested: of two outliers the milder one counts.
    asked_before: f64,
}

impl RateLimit {
    /// Starts with the share of a single writer.
    pub(crate) fn new(bandwidth_bytes_per_s: f64) -> Self {
        Self {
            bytes_per_s: bandwidth_bytes_per_s,
            asked_before: bandwidth_bytes_per_s,
        }
    }

    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// Updates the rate from a window in which writers were throttled.
    pub(crate) fn learn(&mut self, window: Window) {
        let task_rate = self.bytes_per_s * window.pos_ratio;
        if window.dirtied_bytes_per_s <= 0.0 {
            return;
        }
        let asked = (task_rate * window.bandwidth_bytes_per_s / window.dirtied_bytes_per_s)
            .min(window.bandwidth_bytes_per_s);
        let now = self.bytes_per_s;
        let target = if window.pos_ratio > 1.0 {
            asked.min(self.asked_before).min(task_rate).max(now)
        } else {
            asked.max(self.asked_before).max(task_rate).min(now)
        };
        self.asked_before = asked;
        self.bytes_per_s = (now + (target - now) * STEP).max(MIN_BYTES_PER_S);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pos_ratio: f64, dirtied: f64) -> f64 {
        let mut rate = RateLimit::new(100.0e6);
        let window = Window {
            pos_ratio,
            bandwidth_bytes_per_s: 100.0e6,
            dirtied_bytes_per_s: dirtied,
        };
        for _ in 0..3 {
            rate.learn(window);
        }
        rate.bytes_per_s()
    }

    #[test]
    fn it_moves_only_where_position_and_rate_agree() {
        assert!(
            after(0.5, 200.0e6) < 90.0e6,
            "too much dirty, and increasing"
        );
        assert_eq!(
            after(0.5, 40.0e6),
            100.0e6,
            "too much dirty, but decreasing"
        );
        assert_eq!(
            after(1.5, 200.0e6),
            100.0e6,
            "too little dirty, but increasing"
        );
        assert_eq!(after(1.0, 100.0e6), 100.0e6);
        assert_eq!(after(1.0, 0.0), 100.0e6, "no writes");
    }

    #[test]
    fn one_odd_window_changes_nothing() {
        let mut rate = RateLimit::new(50.0e6);
        let window = |pos_ratio, dirtied| Window {
            pos_ratio,
            bandwidth_bytes_per_s: 100.0e6,
            dirtied_bytes_per_s: dirtied,
        };
        rate.learn(window(0.999_999, 49.999_95e6));
        let before = rate.bytes_per_s();
        rate.learn(window(0.9, 900.0e6));
        assert!(rate.bytes_per_s() >= before * 0.999);
    }

    #[test]
    fn it_rises_to_the_whole_bandwidth_and_no_further() {
        let mut rate = RateLimit::new(1.0e6);
        for _ in 0..200 {
            let dirtied = rate.bytes_per_s() * 2.0;
            rate.learn(Window {
                pos_ratio: 2.0,
                bandwidth_bytes_per_s: 100.0e6,
                dirtied_bytes_per_s: dirtied,
            });
        }
        assert!((99.0e6..=100.0e6).contains(&rate.bytes_per_s()));
    }

    #[test]
    fn it_never_stops_a_writer() {
        let mut rate = RateLimit::new(1.0e9);
        for _ in 0..1000 {
            rate.learn(Window {
                pos_ratio: 0.0,
                bandwidth_bytes_per_s: 1.0e9,
                dirtied_bytes_per_s: 1.0e9,
            });
        }
        assert_eq!(rate.bytes_per_s(), MIN_BYTES_PER_S);
    }
}
