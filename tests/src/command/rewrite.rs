//! Rewrites a container's texts as the kubelet and the container's file system would.

/// Replaces references `$(NAME)` to known variables, as the kubelet does: of variables with the same name the last one
/// counts, references to unknown variables stay, and `$$` becomes `$`.
#[must_use]
pub fn expanded(text: &str, known: &[(String, String)]) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        done.push_str(before);
        let reference = after.strip_prefix('(').and_then(|it| it.split_once(')'));
        rest = match (after.strip_prefix('$'), reference) {
            (Some(after), _) => {
                done.push('$');
                after
            }
            (None, Some((name, after))) => {
                match known.iter().rfind(|(known, _)| known == name) {
                    Some((_, value)) => done.push_str(value),
                    None => done.extend(["$(", name, ")"]),
                }
                after
            }
            (None, None) => {
                done.push('$');
                after
            }
        };
    }
    done + rest
}

/// Replaces paths in the container with paths on this host. A nested mount takes precedence, and replaced text is not
/// replaced again: the host's folder may begin like a path in the container.
pub(super) fn rewritten(text: &str, mounts: &[(String, String)]) -> String {
    let first = mounts
        .iter()
        .filter_map(|(inside, outside)| Some((text.find(inside.as_str())?, inside, outside)))
        .min_by_key(|(at, inside, _)| (*at, std::cmp::Reverse(inside.len())));
    let Some((at, inside, outside)) = first else {
        return text.to_owned();
    };
    let rest = rewritten(&text[at + inside.len()..], mounts);
    format!("{}{outside}{rest}", &text[..at])
}
