//! Fits of quadratic curves.

/// `constant + linear * x + square * x * x`
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quadratic {
    pub(super) constant: f64,
    pub(super) linear: f64,
    pub(super) square: f64,
}

impl Quadratic {
    /// The least-squares fit. `None`: there are not enough points.
    ///
    /// Source: the normal equations, solved by Cramer's rule. The limit of the determinant is that of synApps calc.
    pub(super) fn fit(points: impl Iterator<Item = (f64, f64)>) -> Option<Quadratic> {
        const SMALL: f64 = 1e-8;
        // Sums of the powers of x, and of the powers times y.
        let (mut powers, mut products) = ([0.0; 5], [0.0; 3]);
        for (x, y) in points {
            let power = [1.0, x, x * x, x * x * x, x * x * x * x];
            powers.iter_mut().zip(power).for_each(|(sum, power)| *sum += power);
            products.iter_mut().zip(power).for_each(|(sum, power)| *sum += power * y);
        }
        let [s0, s1, s2, s3, s4] = powers;
        let columns = [[s0, s1, s2], [s1, s2, s3], [s2, s3, s4]];
        let [first, second, third] = columns;
        let whole = determinant(columns);
        if whole.abs() < SMALL {
            return None;
        }
        Some(Quadratic {
            constant: determinant([products, second, third]) / whole,
            linear: determinant([first, products, third]) / whole,
            square: determinant([first, second, products]) / whole,
        })
    }

    pub(super) fn at(self, x: f64) -> f64 {
        self.constant + self.linear * x + self.square * x * x
    }

    fn slope_at(self, x: f64) -> f64 {
        self.linear + 2.0 * self.square * x
    }
}

/// The determinant of three columns.
fn determinant([a, b, c]: [[f64; 3]; 3]) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - b[0] * (a[1] * c[2] - a[2] * c[1]) + c[0] * (a[1] * b[2] - a[2] * b[1])
}

/// The slope at each element, from a fit to the element and `n_around` elements on either side. `None`: there are not
/// enough elements.
pub(super) fn derivative(elements: &[f64], n_around: usize) -> Option<Vec<f64>> {
    let n_fitted = 2 * n_around + 1;
    let last_start = elements.len().checked_sub(n_fitted)?;
    let slope = |index: usize| {
        let start = index.saturating_sub(n_around).min(last_start);
        let part = elements.get(start..start + n_fitted)?;
        let points = part.iter().enumerate().map(|(x, y)| (x as f64, *y));
        Some(Quadratic::fit(points)?.slope_at((index - start) as f64))
    };
    (0..elements.len()).map(slope).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quadratic_fit_recovers_the_coefficients_and_the_slope() {
        let curve = Quadratic { constant: 1.0, linear: -2.0, square: 0.5 };
        let values: Vec<f64> = (0..9).map(|x| curve.at(f64::from(x))).collect();

        let found = Quadratic::fit(values.iter().enumerate().map(|(x, y)| (x as f64, *y)));
        let found = found.map(|found| [found.constant, found.linear, found.square]);
        assert!(found.is_some_and(|found| found.iter().zip([1.0, -2.0, 0.5]).all(|(a, b)| (a - b).abs() < 1e-9)));

        let slopes = derivative(&values, 2).unwrap_or_default();
        assert!(slopes.iter().enumerate().all(|(x, slope)| (slope - curve.slope_at(x as f64)).abs() < 1e-9));
        assert_eq!(slopes.len(), 9);
    }

    #[test]
    fn a_quadratic_fit_needs_at_least_three_points() {
        assert_eq!(Quadratic::fit([(0.0, 1.0), (1.0, 2.0)].into_iter()), None);
        assert_eq!(derivative(&[1.0, 2.0, 3.0, 4.0], 2), None);
        assert_eq!(derivative(&[1.0, 2.0, 3.0, 4.0, 5.0], 0), None);
    }
}
