//! Whether a series is flat: the median of the slopes between all pairs of its points (Theil and Sen), which neither a spike nor the teeth
//! of a saw can bend, over the time that is judged, as a share of the median.

use serde::Serialize;

/// What a series may grow by.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Bound {
    /// The share of its median that it may grow by over the time that is judged.
    pub(crate) share: f64,
    /// Or by this much, in its unit: of something small a large share is nothing.
    pub(crate) floor: f64,
}

/// What was found of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Fit {
    /// The line's value at the beginning of the time that is judged.
    pub(crate) from: f64,
    /// And at its end.
    pub(crate) to: f64,
    /// Their difference as a share of the median.
    pub(crate) growth: f64,
    pub(crate) is_flat: bool,
}

/// Fits points (seconds, value), in order of time. Too few say nothing, and are not flat.
pub(crate) fn fit(points: &[(f64, f64)], bound: Bound) -> Option<Fit> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    if points.len() < 5 || last <= first {
        return None;
    }
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (at, (x, y)) in points.iter().enumerate() {
        slopes.extend(
            points[at + 1..]
                .iter()
                .filter(|(later, _)| later > x)
                .map(|(later, value)| (value - y) / (later - x)),
        );
    }
    let slope = median(&mut slopes)?;
    let mut values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    let level = median(&mut values)?;
    let mut rests: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let rest = median(&mut rests)?;
    let grown = slope * (last - first);
    let growth = if level.abs() > f64::EPSILON { grown / level } else { 0.0 };
    let is_flat = grown <= (bound.share * level).max(bound.floor);
    Some(Fit { from: rest + slope * first, to: rest + slope * last, growth, is_flat })
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*values.get(middle.checked_sub(1)?)?, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { share: 0.1, floor: 1.0 };

    fn of(value: impl Fn(f64) -> f64) -> Fit {
        let points: Vec<_> = (0..100).map(|n| (f64::from(n), value(f64::from(n)))).collect();
        fit(&points, BOUND).unwrap()
    }

    #[test]
    fn a_level_series_is_flat_whatever_spikes_and_teeth_it_has() {
        assert!(of(|_| 50.0).is_flat);
        assert!(of(|x| if x as u32 % 25 == 7 { 5_000.0 } else { 50.0 }).is_flat);
        let saw = of(|x| 50.0 + x % 10.0);
        assert!(saw.is_flat && saw.growth.abs() < 0.05, "{saw:?}");
        assert!(of(|x| 100.0 - x).is_flat, "what shrinks does not grow");
    }

    #[test]
    fn what_grows_is_not_flat() {
        let grows = of(|x| 50.0 + x * 0.2);
        assert!(!grows.is_flat && (grows.growth - 0.33).abs() < 0.01, "{grows:?}");
        assert!((grows.from - 50.0).abs() < 0.01 && (grows.to - 69.8).abs() < 0.01, "{grows:?}");
        let teeth = of(|x| 50.0 + x * 0.2 + x % 10.0);
        assert!(!teeth.is_flat, "{teeth:?}");
    }

    #[test]
    fn a_small_thing_may_grow_by_its_floor() {
        assert!(of(|x| 1.0 + x * 0.009).is_flat);
        assert!(!of(|x| 1.0 + x * 0.02).is_flat);
        assert_eq!(fit(&[(0.0, 1.0), (1.0, 1.0)], BOUND), None, "too few points say nothing");
    }
}
