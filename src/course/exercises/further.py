"""One thing to try after each exercise: shown once the answer is right."""

TRY = {
    "01.1": "read the same bytes with int.from_bytes, once as 'little' and "
            "once as 'big'. For which numbers do the two agree?",
    "01.2": "find the smallest positive number that your function gives, "
            "and the largest finite one.",
    "01.3": "round 1.0 + 2**-9 and 1.0 + 3 * 2**-9. Which way do they go, "
            "and why not both the same way?",
    "01.4": "fit 200 + 100 into eight bits without a sign. What is left of "
            "300, and what does 300 % 256 say?",
    "01.5": "which elements does one byte change if the same storage is "
            "read as int64?",
    "01.6": "how far does a dimension of size 1000 reach if its stride "
            "is 0?",
    "02.1": "transpose a (1, 5) tensor. Is it still contiguous?",
    "02.2": "slice a slice: is the result a slice of the first tensor, "
            "and with which three numbers?",
    "02.3": "permute a contiguous (2, 3, 4) tensor in all six ways. How "
            "many runs has each?",
    "02.4": "which is the smallest storage that holds a (3, 3) tensor with "
            "the strides (1, 1)?",
    "02.5": "put a None between two indices. Where do the indexed "
            "dimensions go, and where would you have put them?",
    "03.1": "add a kernel for one dtype beside the one for all. Which of "
            "the two runs, and does the order of registration matter?",
    "03.2": "write the schema of an operator that returns its first "
            "argument after writing to it, and ask your function.",
    "03.3": "how many bits can a set of keys have before Python's int "
            "needs a second machine word? Does your function care?",
    "03.4": "swap two layers. On which calls can you see the difference?",
    "03.5": "bind the same call through inspect.signature(...).bind. Which "
            "of its errors say more than yours?",
    "03.6": "let a mode call the kernel twice. Which mode sees the second "
            "call?",
    "03.7": "sort the places of a sparse tensor backwards. What must "
            "coalesce() do with it?",
    "04.1": "broadcast to a shape with a 0 in it. Which stride do you "
            "give that dimension, and does it matter?",
    "04.2": "join the loops of x + x.t(). How many are left, and how many "
            "with x + x?",
    "04.3": "meet a float32 tensor with the Python number 1e300. Which "
            "dtype comes out, and what becomes of the number?",
    "04.4": "compare -7 // 2 in Python with the same division in C. Which "
            "of the two is your function's input?",
    "04.5": "subtract a (3, 1) from a (1, 4) by hand, on paper, and count "
            "how often each element is read.",
    "05.1": "sum 1.0 and then ten million times 1e-16, with and without "
            "the correction.",
    "05.2": "sum over the last dimension and over the first one. In which "
            "case do neighbouring elements meet?",
    "05.3": "ask for the largest of [nan, 1.0] and of [1.0, nan] with "
            "Python's max. Why do the answers differ?",
    "05.4": "scatter into one place many times. What would an assignment "
            "in place of the sum leave there?",
    "05.5": "merge in another order. Do the last digits stay the same?",
    "05.6": "compute it without taking the largest out, for [1000.0]. "
            "What happens first?",
    "06.1": "give b the strides of its transpose. Which product comes out?",
    "06.2": "walk down a column of a row-major (1024, 1024) matrix of "
            "float32. How many lines of 64 bytes is that?",
    "06.3": "choose a tile of size 1, and one as large as the matrix. "
            "Which order do both give?",
    "06.4": "multiply a vector by a batch of matrices. Which dimension "
            "was added, and where did it go?",
    "06.5": "write the trace, the diagonal and the outer product, each as "
            "one einsum.",
    "06.6": "find three sizes for which the order makes a hundredfold "
            "difference.",
    "07.1": "halve the step again and again. When does the error stop "
            "getting smaller, and why does it grow afterwards?",
    "07.2": "carry a second slope along, the slope of the slope.",
    "07.3": "a chain of 100 000 nodes. Does your function survive it?",
    "07.4": "which node of a graph can have a count of 0?",
    "07.5": "walk in an order that is wrong, on a graph with two paths. "
            "Which gradient is too small?",
    "07.6": "walk three times. By what factor do the leaves' gradients "
            "grow, and what undoes it?",
    "07.7": "for which sizes do the two ways cost the same?",
    "07.8": "add up the local slopes. Why is the sum always 1?",
    "08.1": "undo a broadcast from () to (3, 4). How many dimensions are "
            "summed, and how many are kept?",
    "08.2": "take an edge away in the middle of the graph. Which nodes "
            "does the walk no longer need?",
    "08.3": "check the two shapes alone, without a number. Do they leave "
            "any other product possible?",
    "08.4": "where is the slope largest, and what is it there?",
    "08.5": "let the windows overlap completely, then not at all. What do "
            "the gradients say about how often each element was used?",
    "08.6": "write to a view of a saved tensor, then to a copy of it. "
            "Which of the two makes the save stale?",
    "08.7": "write to the whole tensor. What is left of the gradient of "
            "the old values?",
    "08.8": "count the calls. For which shapes is a forward pass cheaper "
            "than this?",
    "09.1": "set one weight to 0 and draw u = 0.0. Is it ever picked?",
    "09.2": "put the same parameter into two modules. Which of the two "
            "paths does an optimiser see?",
    "09.3": "rename a layer and load the old state. Which of the lists "
            "tell you?",
    "09.4": "stack twenty layers with half this bound. How large is the "
            "signal at the end?",
    "09.5": "evaluate right after the first batch with momentum 0.1. Which "
            "variance is used, and is it close?",
    "09.6": "give the right class a logit of 1000. What would log(softmax) "
            "in two steps say, and what do you say?",
    "09.7": "compare with -log(sigmoid(z)) for z = -800.",
    "10.1": "keep the gradient at 1. To what does the velocity grow for a "
            "momentum of 0.9?",
    "10.2": "leave the two corrections out. How large is the first step "
            "then?",
    "10.3": "clip twice with the same limit. Does the second time change "
            "anything?",
    "10.4": "draw the plan over all steps with course.figures.plots(). "
            "Where is it steepest?",
    "10.5": "give losses that fall by very little in every epoch. Is the "
            "rate ever halved, and should it be?",
    "10.6": "load what you packed into an optimiser of other groups. What "
            "should it say?",
    "11.1": "how many samples does an epoch lose at most to drop_last?",
    "11.2": "read the accuracy off the matrix, and then the class that is "
            "mistaken most.",
    "11.3": "multiply each loss by 1 / len(sizes) in place of these. For "
            "which sizes is that the same?",
    "11.4": "make the loss fall once in a while, by very little. How long "
            "does the training go on?",
    "11.5": "write an entry that begins before the one before it ends. "
            "Which check has to notice?",
}
