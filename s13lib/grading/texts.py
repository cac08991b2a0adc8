"""What a check says, in both languages."""

from s13lib.grading.part import Text

# kind of trouble → what came, and why. {} is the trouble's detail.
TROUBLES = {
    "todo": (
        Text("nothing: the stub is still there ({})", "什么也没有：还是原来的占位代码（{}）"),
        Text("Replace the line that raises NotImplementedError by your answer.", "把抛出 NotImplementedError 的那一行换成你的答案。"),
    ),
    "raised": (
        Text("an exception: {}", "一个异常：{}"),
        Text("Call your function with the inputs above and follow the traceback.", "用上面的输入自己调用一次，顺着 traceback 找。"),
    ),
    "exit": (
        Text("an exit: the code calls exit or raises SystemExit", "退出：代码调用了 exit 或抛出了 SystemExit"),
        Text("Return a value instead of leaving Python.", "应当返回一个值，而不是退出 Python。"),
    ),
    "slow": (
        Text("nothing within {} s", "{} 秒内没有结果"),
        Text("A loop that does not end? Look at its condition, and at what changes in each round.", "循环没有结束？看看它的条件，以及每一轮改变了什么。"),
    ),
    "flood": (
        Text("more than {} characters of output", "超过 {} 个字符的输出"),
        Text("Print less: the return value is what counts.", "少打印一些：算分的是返回值。"),
    ),
    "borrowed": (
        Text("a call of {}", "调用了 {}"),
        Text("This part is about writing it yourself; compare with the library afterwards.", "这一题要求自己写；写完之后再和库里的比较。"),
    ),
    "died": (
        Text("nothing: the process ended ({})", "什么也没有：进程结束了（{}）"),
        Text("A crash of the interpreter, or too much memory: look for very large arrays and for writes out of range.", "解释器崩溃，或者内存用得太多：看看有没有特别大的数组，或者越界写入。"),
    ),
    "signature": (
        Text("something that cannot be called as {}", "不能按 {} 调用的东西"),
        Text("Keep the function's name and its parameters as the exercise gives them.", "函数名和参数请保持题目给出的样子。"),
    ),
    "missing": (
        Text("no definition of {}", "没有找到 {} 的定义"),
        Text("Keep the name that the exercise gives, and define it at the top level of a cell.", "请保留题目给的名字，并在单元格的最外层定义它。"),
    ),
    "unreadable": (
        Text("a value that cannot be read back: {}", "无法读回的值：{}"),
        Text("Return numbers, lists, arrays or tensors.", "请返回数、列表、数组或张量。"),
    ),
}  # fmt: skip
MUTATED = Text(
    "It writes into its argument {}: the caller still needs the old values. Work on a new tensor or a copy.",
    "它改写了参数 {}：调用者还需要原来的值。请写到新的张量或副本里。",
)
