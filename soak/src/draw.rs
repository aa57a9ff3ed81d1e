//! The picture: a chart for each series, with the time that is not judged and the line that was fitted.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::report::{Judged, Report};

const SIZE: (u32, u32) = (1_200, 1_700);
const COLUMNS: usize = 2;
const GREY: RGBColor = RGBColor(238, 238, 238);
const BLUE_DOTS: RGBColor = RGBColor(66, 113, 174);
const LINE_FLAT: RGBColor = RGBColor(60, 140, 70);
const LINE_GROWS: RGBColor = RGBColor(200, 40, 40);

/// Draws the report as SVG.
pub(crate) fn draw(report: &Report, to: &Path) -> Result<()> {
    let root = SVGBackend::new(to, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let title = format!(
        "{} min, {} instances/s, ended ones kept for {} s; grey is not judged",
        report.minutes, report.rate, report.keep
    );
    let root = root.titled(&title, ("sans-serif", 20)).map_err(failed)?;
    let rows = report.series.len().div_ceil(COLUMNS);
    for (area, judged) in root.split_evenly((rows, COLUMNS)).iter().zip(&report.series) {
        chart(area, judged, report)?;
    }
    root.present().map_err(failed)
}

fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    judged: &Judged,
    report: &Report,
) -> Result<()> {
    let last = report.minutes * 60.0;
    let high = judged.points.iter().map(|(_, value)| *value).fold(1.0, f64::max) * 1.15;
    let growth = judged
        .fit
        .map_or_else(|| "too few samples".to_owned(), |fit| format!("{:+.1} %", fit.growth * 100.0));
    let caption = format!("{} {} ({growth})", judged.name, judged.unit);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..last / 60.0, 0.0..high)
        .map_err(failed)?;
    let warm_up = [(0.0, 0.0), (report.warm_up / 60.0, high)];
    chart.draw_series([Rectangle::new(warm_up, GREY.filled())]).map_err(failed)?;
    chart.configure_mesh().x_desc("minutes").light_line_style(TRANSPARENT).draw().map_err(failed)?;
    let dots =
        judged.points.iter().map(|(at, value)| Circle::new((at / 60.0, *value), 2, BLUE_DOTS.filled()));
    chart.draw_series(dots).map_err(failed)?;
    if let Some(fit) = judged.fit {
        let colour = if fit.is_flat { LINE_FLAT } else { LINE_GROWS };
        let line = [(report.warm_up / 60.0, fit.from), (last / 60.0, fit.to)];
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2))).map_err(failed)?;
    }
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the picture cannot be drawn: {error}")
}
