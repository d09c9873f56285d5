//! The image contains everything that the operator's programs need.

use std::path::Path;

use asya_tests::operator::{Launch, Operator, bin_folder};
use asya_tests::process::{Folder, Spec, output};
use asya_tests::scenario::Scenario;

const PROGRAMS: [&str; 2] = ["asya-controller", "asya-webhook"];

#[tokio::test]
async fn both_programs_become_ready_with_the_images_files_alone() {
    Scenario::run("image", async |scenario| {
        let folder = Folder::create("image")?;
        let root = folder.path().join("root");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/root.sh");
        let bin = bin_folder()?;
        let programs = PROGRAMS.map(|name| bin.join(name).display().to_string());
        let layout = Spec::new("root.sh", script).inherit_env();
        output(layout.arg(root.display()).args(programs)).await?;

        let launch = Launch {
            root: Some(root),
            ..Launch::default()
        };
        let operator = Operator::installed(scenario.cluster()).await?;
        for instance in [
            operator.launch("image", launch.clone()).await?,
            operator.launch_webhook("image-webhook", launch).await?,
        ] {
            instance.wait_ready().await?;
            instance.stop().await?;
        }
        Ok(())
    })
    .await;
}
