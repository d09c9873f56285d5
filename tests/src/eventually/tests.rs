use std::time::Duration;

use super::{NotYet, eventually};

#[tokio::test]
async fn wait_ends_when_the_condition_holds() {
    let mut looks = 0;
    let seen = eventually("three looks", Duration::from_secs(5), async || {
        looks += 1;
        if looks == 3 {
            Ok(looks)
        } else {
            Err(NotYet::new(looks))
        }
    });
    assert_eq!(seen.await.unwrap(), 3);
}

#[tokio::test]
async fn timeout_reports_the_last_observation() {
    let never = eventually("blue", Duration::from_millis(50), async || {
        Err::<(), _>(NotYet::new("green"))
    });
    let message = never.await.unwrap_err().to_string();
    assert!(
        message.contains("blue") && message.contains("green"),
        "{message}"
    );
}

#[tokio::test]
async fn hanging_check_is_aborted_by_the_timeout() {
    let hang = eventually("an answer", Duration::from_millis(50), async || {
        std::future::pending::<()>().await;
        Ok(())
    });
    assert!(hang.await.is_err());
}
