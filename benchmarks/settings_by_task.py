"""Settings given on the command line of a benchmark, for all tasks (`key=value`) or for one (`task:key=value`)."""


def overrides_by_task(tasks: list[str], settings: list[str]) -> dict[str, dict[str, str]]:
    """For each task the settings given for all tasks, then those given for it."""
    found: dict[str, dict[str, str]] = {task: {} for task in tasks}
    for is_own in (False, True):
        for key, value in (pair.split("=", 1) for pair in settings):
            task, colon, rest = key.partition(":")
            if bool(colon) != is_own:
                continue
            if is_own and task not in found:
                raise SystemExit(f"--set {key}: there is no task {task} here; there are {', '.join(tasks)}")
            for each in [task] if is_own else tasks:
                found[each][rest if is_own else key] = value
    return found
