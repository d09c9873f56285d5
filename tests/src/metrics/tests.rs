use super::Metrics;

const PAGE: &str = r#"# HELP reviews Reviews.
# TYPE reviews counter
reviews_total{reason="Valid",dry_run="true"} 2
reviews_total{reason="Valid",dry_run="false"} 3 1700000000000
reviews_total{reason="NotValid",dry_run="false"} 4 # {trace="x"} 1.0
reviews_total_other 8
text{value="a \"}\" \\ b\n",empty="",} 1
took_seconds_bucket{le="+Inf"} 16
up 1
missing NaN
# EOF
"#;

#[test]
fn samples_are_summed_by_exact_name_and_labels() {
    let page = Metrics::parse(PAGE).unwrap();
    for (name, labels, expected) in [
        ("reviews_total", &[][..], Some(9.0)),
        ("reviews_total", &[("reason", "Valid")], Some(5.0)),
        (
            "reviews_total",
            &[("dry_run", "false"), ("reason", "Valid")],
            Some(3.0),
        ),
        ("reviews_total", &[("reason", "Val")], None),
        ("reviews_total", &[("son", "Valid")], None),
        ("reviews", &[], None),
        ("took_seconds_bucket", &[("le", "+Inf")], Some(16.0)),
        ("text", &[("value", "a \"}\" \\ b\n")], Some(1.0)),
        ("text", &[("empty", "")], Some(1.0)),
        ("up", &[], Some(1.0)),
        ("up", &[("empty", "")], None),
    ] {
        assert_eq!(page.sum(name, labels), expected, "{name} {labels:?}");
    }
    assert!(page.sum("missing", &[]).is_some_and(f64::is_nan));
}

#[test]
fn page_that_is_none_is_an_error() {
    for page in [
        "<html>",
        "up",
        "up one",
        "up{a=\"b\" 1",
        "up{a=b} 1",
        "503 no leader",
    ] {
        assert!(Metrics::parse(page).is_err(), "{page}");
    }
}
