"""Each case of CPython's own tests of executors (3.11 to 3.13): the test of ours for it, which always runs, and, where
theirs cannot be run against a `SparrowExecutor`, why not."""

from typing import NamedTuple

EXECUTOR = "sparrow_py/test_sparrow_executor.py"
EXIT = "sparrow_py/test_executor_exit.py"
ENDINGS = "sparrow_py/test_client_endings.py"
CLIENT = "sparrow_py/test_client.py"


class Case(NamedTuple):
    """`ours` is a test's name, in `module` below tests/; without one, `reason` says why there is nothing to test."""

    ours: str
    module: str = EXECUTOR
    reason: str = ""


CLUSTERS = "the workers are the cluster's: an executor neither counts nor starts nor sets up any"
INSIDE = "looks at the inside of the library's pools"
LIBRARYS = "makes pools of the library's own, whatever is tested"
BROKEN = "expects a pool that is broken: here a worker that dies is replaced, and only its own task is lost"
MEMORY = "its calls and the test share memory; workers are other processes, wherever they run"

CASES = {
    # ---- Executor ----------------------------------------------------------------------------
    "ExecutorTest.test_submit": Case("test_submit_schedules_fn_args_kwargs_and_returns_a_future"),
    "ExecutorTest.test_submit_keyword": Case("test_submit_without_a_function_is_a_type_error"),
    "ExecutorTest.test_map": Case("test_map_chunksize_makes_tasks_of_several_calls"),
    "ExecutorTest.test_map_exception": Case("test_map_raises_a_calls_exception_when_its_value_is_retrieved"),
    "ExecutorTest.test_map_timeout": Case("test_map_raises_timeout_error_if_the_result_is_not_there_in_time"),
    "ExecutorTest.test_shutdown_race_issue12456": Case("test_a_map_that_nobody_iterates_is_done_by_shutdown"),
    "ExecutorTest.test_no_stale_references": Case("test_what_was_submitted_is_not_kept"),
    "ExecutorTest.test_free_reference": Case("test_a_map_keeps_nothing_of_what_it_has_yielded", ENDINGS),
    "ExecutorTest.test_max_workers_negative": Case("", reason=f"{CLUSTERS}, so there is no max_workers"),
    "ThreadPoolExecutorTest.test_map_submits_without_iteration": Case(
        "test_map_runs_before_its_results_are_asked_for", reason=MEMORY
    ),
    "ThreadPoolExecutorTest.test_default_workers": Case("", reason=f"{CLUSTERS}, so there is no max_workers"),
    "ThreadPoolExecutorTest.test_saturation": Case("test_running_and_done_tell_the_state", reason=INSIDE),
    "ThreadPoolExecutorTest.test_idle_thread_reuse": Case("", reason=INSIDE),
    "ThreadPoolExecutorTest.test_hang_global_shutdown_lock": Case(
        "test_an_embedded_cluster_ends_after_the_work_and_a_forked_process_waits_for_nothing",
        EXIT,
        reason=LIBRARYS,
    ),
    "ThreadPoolExecutorTest.test_executor_map_current_future_cancel": Case(
        "test_a_map_that_times_out_cancels_what_has_not_started", reason=MEMORY
    ),
    "ProcessPoolExecutorTest.test_max_workers_too_large": Case("", reason="is of Windows alone"),
    "ProcessPoolExecutorTest.test_killed_child": Case(
        "test_a_task_that_kills_its_worker_is_lost_after_max_attempts", CLIENT, reason=BROKEN
    ),
    "ProcessPoolExecutorTest.test_map_chunksize": Case("test_map_chunksize_makes_tasks_of_several_calls"),
    "ProcessPoolExecutorTest.test_traceback": Case(
        "test_result_raises_the_calls_exception_with_its_remote_traceback_as_cause",
        reason="wants the private class of the library's pool as the cause; here it is sparrow_py.RemoteTraceback",
    ),
    "ProcessPoolExecutorTest.test_ressources_gced_in_workers": Case(
        "test_an_argument_is_let_go_when_the_call_has_ended",
        reason="its argument can be unpickled in children of the test's process alone (a multiprocessing manager's)",
    ),
    "ProcessPoolExecutorTest.test_saturation": Case("test_running_and_done_tell_the_state", reason=INSIDE),
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": Case("", reason=INSIDE),
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": Case("", reason=INSIDE),
    "ProcessPoolExecutorTest.test_max_tasks_per_child": Case("", reason=CLUSTERS),
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": Case("", reason=CLUSTERS),
    "ProcessPoolExecutorTest.test_max_tasks_early_shutdown": Case("", reason=CLUSTERS),
    "ProcessPoolExecutorTest.test_python_finalization_error": Case(
        "test_what_was_submitted_is_finished_and_hooks_submit_nothing",
        EXIT,
        reason=f"{INSIDE}: lets one of the threads that they need start, and no other",
    ),
    "InitializerMixin.test_initializer": Case("", reason=CLUSTERS),
    "FailingInitializerMixin.test_initializer": Case("", reason=CLUSTERS),
    "FailingInitializerResourcesTest.test_spawn": Case("", reason=CLUSTERS),
    "FailingInitializerResourcesTest.test_forkserver": Case("", reason=CLUSTERS),
    # ---- shutdown ----------------------------------------------------------------------------
    "ExecutorShutdownTest.test_run_after_shutdown": Case("test_submit_and_map_after_shutdown_raise_runtime_error"),
    "ExecutorShutdownTest.test_interpreter_shutdown": Case(
        "test_what_was_submitted_is_finished_and_hooks_submit_nothing", EXIT
    ),
    "ExecutorShutdownTest.test_submit_after_interpreter_shutdown": Case(
        "test_what_was_submitted_is_finished_and_hooks_submit_nothing", EXIT
    ),
    "ExecutorShutdownTest.test_hang_issue12364": Case("test_shutdown_waits_for_pending_futures"),
    "ExecutorShutdownTest.test_cancel_futures": Case(
        "test_shutdown_cancel_futures_cancels_what_has_not_started",
        reason="expects that some calls start though shutdown follows at once; here all may be cancelled before a "
        "scheduler has placed any",
    ),
    "ExecutorShutdownTest.test_hang_gh83386": Case(
        "test_what_was_left_by_a_shutdown_that_does_not_wait_is_finished", EXIT
    ),
    "ExecutorShutdownTest.test_hang_gh94440": Case("test_shutdown_after_a_call_was_cancelled"),
    "ThreadPoolShutdownTest.test_threads_terminate": Case("test_shutdown_ends_its_threads", reason=INSIDE),
    "ThreadPoolShutdownTest.test_context_manager_shutdown": Case(
        "test_context_manager_waits_and_shuts_down", reason=LIBRARYS
    ),
    "ThreadPoolShutdownTest.test_del_shutdown": Case(
        "test_one_that_is_dropped_finishes_and_ends_its_threads", reason=LIBRARYS
    ),
    "ThreadPoolShutdownTest.test_shutdown_no_wait": Case(
        "test_shutdown_without_wait_returns_and_pending_futures_still_finish", reason=LIBRARYS
    ),
    "ThreadPoolShutdownTest.test_thread_names_assigned": Case("", reason=LIBRARYS),
    "ThreadPoolShutdownTest.test_thread_names_default": Case("", reason=LIBRARYS),
    "ThreadPoolShutdownTest.test_cancel_futures_wait_false": Case(
        "test_what_was_cancelled_by_a_shutdown_that_does_not_wait_ends",
        EXIT,
        reason=LIBRARYS,
    ),
    "ProcessPoolShutdownTest.test_processes_terminate": Case("test_shutdown_ends_its_threads", reason=INSIDE),
    "ProcessPoolShutdownTest.test_context_manager_shutdown": Case(
        "test_context_manager_waits_and_shuts_down", reason=LIBRARYS
    ),
    "ProcessPoolShutdownTest.test_del_shutdown": Case(
        "test_one_that_is_dropped_finishes_and_ends_its_threads", reason=LIBRARYS
    ),
    "ProcessPoolShutdownTest.test_shutdown_no_wait": Case(
        "test_shutdown_without_wait_returns_and_pending_futures_still_finish", reason=LIBRARYS
    ),
    # ---- what ends workers, or should not ----------------------------------------------------
    "ExecutorDeadlockTest.test_error_at_task_pickle": Case("test_an_unpicklable_argument_is_the_futures_error"),
    "ExecutorDeadlockTest.test_exit_at_task_unpickle": Case(
        "test_what_unpickling_an_argument_raises_is_the_futures_error", reason=BROKEN
    ),
    "ExecutorDeadlockTest.test_error_at_task_unpickle": Case(
        "test_what_unpickling_an_argument_raises_is_the_futures_error", reason=BROKEN
    ),
    "ExecutorDeadlockTest.test_crash_at_task_unpickle": Case(
        "test_a_task_that_kills_its_worker_is_lost_after_max_attempts", CLIENT, reason=BROKEN
    ),
    "ExecutorDeadlockTest.test_crash_during_func_exec_on_worker": Case(
        "test_a_task_that_kills_its_worker_is_lost_after_max_attempts", CLIENT, reason=BROKEN
    ),
    "ExecutorDeadlockTest.test_exit_during_func_exec_on_worker": Case(
        "test_sys_exit_in_a_task_is_its_exception", CLIENT
    ),
    "ExecutorDeadlockTest.test_error_during_func_exec_on_worker": Case("test_exception_returns_it_or_none"),
    "ExecutorDeadlockTest.test_crash_during_result_pickle_on_worker": Case(
        "test_a_task_that_kills_its_worker_is_lost_after_max_attempts", CLIENT, reason=BROKEN
    ),
    "ExecutorDeadlockTest.test_exit_during_result_pickle_on_worker": Case(
        "test_what_pickling_a_result_raises_is_that_futures_and_is_not_tried_again", ENDINGS
    ),
    "ExecutorDeadlockTest.test_error_during_result_pickle_on_worker": Case(
        "test_an_unpicklable_result_is_an_error_that_names_it",
        reason="wants pickling's own error; here it is a TypeError that names the result and repeats that error's text",
    ),
    "ExecutorDeadlockTest.test_error_during_result_unpickle_in_result_handler": Case(
        "test_what_unpickling_a_result_raises_is_that_futures", ENDINGS, reason=BROKEN
    ),
    "ExecutorDeadlockTest.test_exit_during_result_unpickle_in_result_handler": Case(
        "test_what_unpickling_a_result_raises_is_that_futures", ENDINGS, reason=BROKEN
    ),
    "ExecutorDeadlockTest.test_shutdown_deadlock": Case(
        "test_shutdown_waits_for_a_call_whose_worker_dies", reason=BROKEN
    ),
    "ExecutorDeadlockTest.test_shutdown_deadlock_pickle": Case(
        "test_shutdown_after_a_call_that_cannot_be_pickled", reason=INSIDE
    ),
    "ExecutorDeadlockTest.test_crash_big_data": Case(
        "test_large_arguments_of_calls_that_kill_their_workers", reason=BROKEN
    ),
    "ExecutorDeadlockTest.test_gh105829_should_not_deadlock_if_wakeup_pipe_full": Case(
        "test_a_big_fan_out", reason=f"{INSIDE}: fills a pipe that wakes them"
    ),
    # ---- wait and as_completed ---------------------------------------------------------------
    "WaitTests.test_20369": Case("test_wait_takes_a_future_twice"),
    "WaitTests.test_first_completed": Case("test_wait_first_completed_among_futures_of_others"),
    "WaitTests.test_first_completed_some_already_completed": Case("test_wait_first_completed_among_futures_of_others"),
    "WaitTests.test_first_exception": Case("test_wait_first_exception"),
    "WaitTests.test_first_exception_some_already_complete": Case("test_wait_first_exception_among_futures_of_others"),
    "WaitTests.test_first_exception_one_already_failed": Case("test_wait_first_exception_among_futures_of_others"),
    "WaitTests.test_all_completed": Case("test_wait_all_completed_among_futures_of_others"),
    "WaitTests.test_timeout": Case("test_wait_timeout_among_futures_of_others"),
    "ThreadPoolWaitTests.test_pending_calls_race": Case("test_wait_all_completed", reason=MEMORY),
    "AsCompletedTests.test_no_timeout": Case("test_as_completed_yields_each_future_as_it_completes"),
    "AsCompletedTests.test_zero_timeout": Case("test_as_completed_yields_what_is_done_before_it_times_out"),
    "AsCompletedTests.test_future_times_out": Case("test_as_completed_yields_what_is_done_before_it_times_out"),
    "AsCompletedTests.test_duplicate_futures": Case("test_as_completed_yields_a_future_once"),
    "AsCompletedTests.test_free_reference_yielded_future": Case("test_a_future_that_is_dropped_is_not_kept"),
    "AsCompletedTests.test_correct_timeout_exception_msg": Case(
        "test_as_completed_yields_what_is_done_before_it_times_out"
    ),
    # ---- Future ------------------------------------------------------------------------------
    "FutureTests.test_done_callback_with_result": Case("test_callbacks_get_the_future_in_the_order_added"),
    "FutureTests.test_done_callback_with_exception": Case(
        "test_what_a_done_callback_raises_is_logged_and_ends_nothing", ENDINGS
    ),
    "FutureTests.test_done_callback_with_cancel": Case("test_callback_is_called_when_cancelled"),
    "FutureTests.test_done_callback_raises": Case("test_callbacks_exceptions_are_logged_and_ignored"),
    "FutureTests.test_done_callback_already_successful": Case("test_callback_of_a_done_future_is_called_at_once"),
    "FutureTests.test_done_callback_already_failed": Case("test_callback_of_a_future_that_failed_or_was_cancelled"),
    "FutureTests.test_done_callback_already_cancelled": Case("test_callback_of_a_future_that_failed_or_was_cancelled"),
    "FutureTests.test_done_callback_raises_already_succeeded": Case(
        "test_what_a_callback_raises_where_its_user_adds_it_is_its_users", ENDINGS
    ),
    "FutureTests.test_repr": Case("test_repr_tells_the_state"),
    "FutureTests.test_cancel": Case("test_cancel_of_a_queued_call_is_true_and_it_never_runs"),
    "FutureTests.test_cancelled": Case("test_cancel_of_a_running_call_is_false"),
    "FutureTests.test_done": Case("test_running_and_done_tell_the_state"),
    "FutureTests.test_running": Case("test_running_and_done_tell_the_state"),
    "FutureTests.test_result_with_timeout": Case("test_result_and_exception_raise_timeout_error"),
    "FutureTests.test_result_with_success": Case("test_result_waits_in_another_thread"),
    "FutureTests.test_result_with_cancel": Case("test_cancel_of_a_queued_call_is_true_and_it_never_runs"),
    "FutureTests.test_exception_with_timeout": Case("test_result_and_exception_raise_timeout_error"),
    "FutureTests.test_exception_with_success": Case("test_exception_returns_it_or_none"),
    "FutureTests.test_multiple_set_result": Case("test_a_future_that_is_done_cannot_be_set"),
    "FutureTests.test_multiple_set_exception": Case("test_a_future_that_is_done_cannot_be_set"),
}
