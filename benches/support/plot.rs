//! Plots of a few points, as SVG.

use std::fmt::Write;

/// Pixels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const MARGIN: f64 = 56.0;
/// Colours that are told apart on white and on black, and in grey.
const COLOURS: [&str; 3] = ["#888888", "#d55e00", "#0072b2"];

/// Lines by their names, on logarithmic axes that end at powers of ten. Points at or below 0 are left out.
pub fn log_log(across: &str, up: &str, lines: &[(&str, Vec<(f64, f64)>)]) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points).filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let (left, right) = decades(points().map(|(x, _)| *x));
    let (bottom, top) = decades(points().map(|(_, y)| *y));
    let x = |value: f64| MARGIN + (value.log10() - left) / (right - left) * (WIDTH - 2.0 * MARGIN);
    let y =
        |value: f64| HEIGHT - MARGIN - (value.log10() - bottom) / (top - bottom) * (HEIGHT - 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut add = |text: String| writeln!(svg, "{text}").unwrap();
    let (x0, x1, y0, y1) = (MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN, MARGIN);
    let mut power = left;
    while power <= right {
        let at = x(10_f64.powf(power));
        add(format!("<path d=\"M{at:.0} {y0}V{y1}\" stroke=\"#dddddd\"/>"));
        add(format!("<text x=\"{at:.0}\" y=\"{}\" text-anchor=\"middle\">1e{power}</text>", y0 + 16.0));
        power += 1.0;
    }
    power = bottom;
    while power <= top {
        let at = y(10_f64.powf(power));
        add(format!("<path d=\"M{x0} {at:.0}H{x1}\" stroke=\"#dddddd\"/>"));
        add(format!("<text x=\"{}\" y=\"{:.0}\" text-anchor=\"end\">1e{power}</text>", x0 - 6.0, at + 4.0));
        power += 1.0;
    }
    add(format!("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{across}</text>", WIDTH / 2.0, y0 + 36.0));
    add(format!("<text x=\"{x0}\" y=\"{}\">{up}</text>", y1 - 28.0));
    for ((n, (name, points)), colour) in lines.iter().enumerate().zip(COLOURS.iter().cycle()) {
        let shown = points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0);
        let path: Vec<String> =
            shown.map(|(across, up)| format!("{:.1} {:.1}", x(*across), y(*up))).collect();
        add(format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join("L")
        ));
        let at = y1 + 4.0 + 16.0 * n as f64;
        add(format!("<text x=\"{}\" y=\"{at:.0}\" fill=\"{colour}\">{name}</text>", x0 + 10.0));
    }
    svg + "</svg>\n"
}

/// The powers of ten that values lie between.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values {
        least = least.min(value.log10().floor());
        most = most.max(value.log10().ceil());
    }
    if least < most { (least, most) } else { (least, least + 1.0) }
}
