use super::*;

fn line(name: &str, points: Vec<(f64, f64)>) -> Line {
    Line {
        name: name.into(),
        color: 0,
        points,
        stands_out: false,
    }
}

fn chart(series: Vec<Line>) -> Chart<'static> {
    Chart {
        title: "Loss",
        description: "falls",
        x: Horizontal::Step,
        y_label: "loss",
        from_zero: false,
        series,
    }
}

#[test]
fn a_plot_names_itself_and_its_texts_stay_texts() {
    let drawn = draw(
        &Chart {
            title: "<script>",
            ..chart(vec![
                line("</text><script>", vec![(0.0, 2.0), (1.0, 1.0)]),
                line("b", vec![(0.0, 4.0), (1.0, 3.0)]),
            ])
        },
        Size::Large,
    );
    let svg = drawn.unwrap();
    assert!(svg.as_str().contains("<title>&lt;script&gt;</title>"));
    assert!(!svg.as_str().contains("<script"));
    assert!(
        !svg.as_str().contains("style="),
        "the page's policy forbids inline styles"
    );
}

#[test]
fn nothing_to_draw_is_no_plot_and_odd_values_are_no_panic() {
    assert!(draw(&chart(vec![]), Size::Small).is_none());
    assert!(draw(&chart(vec![line("a", vec![(1.0, f64::NAN)])]), Size::Small).is_none());
    for points in [
        vec![(0.0, 0.0)],
        vec![(5.0, 3.0), (5.0, 3.0)],
        vec![
            (0.0, f64::NAN),
            (1.0, f64::INFINITY),
            (2.0, 1.0),
            (3.0, f64::NAN),
            (4.0, -1.0),
        ],
        vec![(0.0, 1e300), (1.0, -1e300)],
        vec![(0.0, 1e-300), (1.0, 2e-300)],
    ] {
        assert!(draw(&chart(vec![line("a", points)]), Size::Small).is_some());
    }
}

#[test]
fn thinning_keeps_the_peak_and_the_break() {
    let mut points: Vec<(f64, f64)> = (0..100_000).map(|step| (f64::from(step), 1.0)).collect();
    points[54_321].1 = 9.0;
    points[77_777].1 = f64::NAN;
    let kept = thinned(&points, 180);
    assert!(kept.len() < 1_000, "{}", kept.len());
    assert!(kept.iter().any(|point| point.1 == 9.0) && kept.iter().any(|point| point.1.is_nan()));
}

#[test]
fn marks_are_few_and_round() {
    assert_eq!(marks(Horizontal::Step, (1.0, 489.0), 4), [200.0, 400.0]);
    assert_eq!(marks(Horizontal::Step, (0.0, 3.0), 4), [0.0, 1.0, 2.0, 3.0]);
    let minute = 60_000.0;
    let from = 29_933_000.0 * minute;
    let found = marks(Horizontal::Time, (from + 7_000.0, from + 5.0 * minute), 4);
    assert_eq!(found, [2.0, 4.0].map(|minutes| from + minutes * minute));
    for span in [1e3, 61e3, 3.6e6, 9e7, 5e9] {
        let found = marks(Horizontal::Time, (from, from + span), 4);
        assert!((1..=5).contains(&found.len()), "{span}: {found:?}");
    }
}

#[test]
fn marks_close_together_can_be_told_apart() {
    let said = [7.141, 7.1415, 7.142].map(|value| mark(value, 0.0025));
    assert_eq!(said, ["7.141", "7.1415", "7.142"]);
    assert_eq!(
        [mark(0.15, 0.2), mark(40.0, 60.0), mark(0.0, 0.001)],
        ["0.15", "40", "0"]
    );
}

#[test]
fn numbers_are_short() {
    let shown: Vec<String> = [0.0, -0.0, 0.31, 1.0, 12.5, 1240.0, 15_000.0, 2.5e6, 3e-5]
        .into_iter()
        .map(number)
        .collect();
    assert_eq!(
        shown,
        ["0", "0", "0.31", "1", "12.5", "1,240", "15 k", "2.5 M", "3.0e-5"]
    );
}
