//! Long series of numbers: the outline that plots are drawn from has every peak and break, and a fraction of the points.

use std::collections::BTreeMap;

use trainyard::db::metrics::{self, Owner, Point, Selection, SeriesKey};

use crate::world::World;

#[tokio::test]
async fn a_long_series_is_outlined_without_losing_a_peak() {
    let world = World::new().await;
    let owner = Owner::Job(world.key);
    let key = SeriesKey {
        attempt: 1,
        replica: None,
        name: "loss".into(),
    };
    let mut all: Vec<Point> = (0..60_500)
        .map(|step| Point {
            step: Some(step),
            at: 1_796_000_000_000 + step * 100,
            value: 1.0 / (step as f64 + 1.0),
        })
        .collect();
    all[20_321].value = 9.0;
    all[30_777].value = -9.0;
    all[40_404].value = f64::NAN;
    for piece in all.chunks(1_000) {
        // Two small rows at a time, so that merging seals those that are long enough.
        for half in piece.chunks(500) {
            let mut tx = world.db.begin().await.expect("a transaction");
            let series = BTreeMap::from([(key.clone(), half.to_vec())]);
            metrics::append(&mut tx, owner, &series).await.expect("appending");
            tx.commit().await.expect("a commit");
        }
        metrics::compact(&world.db, owner, true).await.expect("compacting");
    }

    let whole = metrics::read(&world.db, owner, &Selection::default())
        .await
        .expect("the points");
    let same = |a: &Point, b: &Point| (a.step, a.at, a.value.to_bits()) == (b.step, b.at, b.value.to_bits());
    assert!(whole[&key].len() == all.len() && whole[&key].iter().zip(&all).all(|(a, b)| same(a, b)));

    let (outline, thinned) = metrics::outline(&world.db, owner, &Selection::default())
        .await
        .expect("the outline");
    let points = &outline[&key];
    assert!(points.len() < all.len() / 20, "{} points", points.len());
    assert!(points.windows(2).all(|pair| pair[0].step < pair[1].step), "in order");
    for wanted in [&all[0], &all[20_321], &all[30_777], &all[40_404], &all[60_499]] {
        assert!(points.iter().any(|point| same(point, wanted)), "{wanted:?}");
    }
    // One row of a series is not long, and is read whole.
    let some = Selection {
        until: chrono::DateTime::from_timestamp_millis(all[3_000].at),
        ..Selection::default()
    };
    let (short, cut) = metrics::outline(&world.db, owner, &some).await.expect("the outline");
    assert_eq!(short[&key].len(), 3_000);
    assert!(thinned && !cut, "only what was left out is said to be");
    // Of a part of the steps every point is there, and none beside it.
    let part = Selection {
        steps: Some((30_001, 30_010)),
        ..Selection::default()
    };
    let (part, cut) = metrics::outline(&world.db, owner, &part).await.expect("a part");
    let steps: Vec<_> = part[&key].iter().filter_map(|point| point.step).collect();
    assert_eq!((steps, cut), ((30_001..=30_010).collect(), false));
}
