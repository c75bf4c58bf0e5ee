//! The balanced rate: how fast each writer may dirty memory, so that all of them together do it as fast as the device takes
//! it.
//!
//! Nobody counts writers. If they were let dirty `task_rate` each, and together dirtied `dirty_rate`, there were
//! `dirty_rate / task_rate` of them, so `bandwidth / dirty_rate × task_rate` is each one's share. One window tells that
//! roughly, so the rate follows it in small steps, and only when the position says the same: it rises only below the
//! setpoint and falls only above it. So noise in the bandwidth does not move a rate that holds dirty memory where it should
//! be.

/// The share of what is missing that a window makes good.
const STEP: f64 = 1.0 / 8.0;

/// No writer is slower than this, in bytes a second: one page every two seconds.
const LEAST_BYTES_PER_S: f64 = 2048.0;

/// What a window showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// [`pos_ratio`](crate::throttle::law::Position::pos_ratio) in it.
    pub(crate) pos_ratio: f64,
    /// The device's smoothed bandwidth.
    pub(crate) bandwidth_bytes_per_s: f64,
    /// What all writers dirtied.
    pub(crate) dirtied_bytes_per_s: f64,
}

/// See the module. In bytes a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    bytes_per_s: f64,
    /// What the window before asked for: of two odd windows the milder counts.
    asked_before: f64,
}

impl RateLimit {
    /// A single writer's share, to begin with.
    pub(crate) fn new(bandwidth_bytes_per_s: f64) -> Self {
        Self {
            bytes_per_s: bandwidth_bytes_per_s,
            asked_before: bandwidth_bytes_per_s,
        }
    }

    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// Learns from a window in which writers were held back.
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
        self.bytes_per_s = (now + (target - now) * STEP).max(LEAST_BYTES_PER_S);
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
        assert!(after(0.5, 200.0e6) < 90.0e6, "too much dirty, and too fast");
        assert_eq!(
            after(0.5, 40.0e6),
            100.0e6,
            "too much dirty, but it gets less"
        );
        assert_eq!(
            after(1.5, 200.0e6),
            100.0e6,
            "too little dirty, but it gets more"
        );
        assert_eq!(after(1.0, 100.0e6), 100.0e6);
        assert_eq!(after(1.0, 0.0), 100.0e6, "nobody wrote");
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
    fn it_never_stops_anybody() {
        let mut rate = RateLimit::new(1.0e9);
        for _ in 0..1000 {
            rate.learn(Window {
                pos_ratio: 0.0,
                bandwidth_bytes_per_s: 1.0e9,
                dirtied_bytes_per_s: 1.0e9,
            });
        }
        assert_eq!(rate.bytes_per_s(), LEAST_BYTES_PER_S);
    }
}
