"""How a task is run where no function of the worker's own process runs it: commands of templates, and functions in
other processes. Each is an async handler like any other: the executor cancels it to stop it.

Begin with `runtimes`, which chooses. `shell` runs command lines (`output` keeps what they write), `http` makes
requests. `processes` keeps processes for functions, and `child` is what runs in one. From outside, `runtimes` is
imported; the executor also needs `child`, and the role that pings needs `http`."""
