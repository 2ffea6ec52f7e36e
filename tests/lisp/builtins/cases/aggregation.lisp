(reduce + 0 [1 2 3]) => 6
(reduce + [1.5 2]) => 3.5
(reduce + []) => 0
(reduce + 5 []) => 5
(reduce + 5 nil) => 5
(reduce - 10 [1 2 3]) => 4
(reduce (fn [a x] (conj a x)) [] #{2 1}) => [1 2]
(reduce (fn [a [k v]] (+ a v)) 0 {:a 1 :b 2}) => 3
(reduce (fn [a x] (reduced a)) 0 [1 2]) => 0
(reduce * [2 3 4]) => 24
(reduce max [3 9 2]) => 9
(reduce str "" ["a" "b"]) => "ab"
(reduce + [1 "a"]) !! +: expects numbers, got a string
(reduce + 0 5) !! reduce: expects a collection, got an integer
(reduce inc 0 [1]) !! expects 1 argument, got 2
(reduce [1 2] +) !! reduce: expects a collection, got a function
(reduce (fn [a x] (if (> a 2) (reduced a) (+ a x))) 0 [1 2 3 4]) => 3
(reduce (fn [a x] (reduced x)) 0 []) => 0
(reduced) !! reduced
(reduce-kv (fn [a k v] (+ a v)) 0 {:a 1 :b 2}) => 3
(reduce-kv (fn [a i x] (conj a [i x])) [] [:x :y]) => [[0 :x] [1 :y]]
(reduce-kv (fn [a k v] (reduced k)) nil {:b 1 :a 2}) => :a
(reduce-kv + 0 nil) => 0
(reduce-kv (fn [a k] a) 0 {:a 1}) !! expects 2 arguments, got 3
(reduce-kv + 0 5) !! reduce-kv: expects a map or vector
(reduce-kv + 0 "ab") !! reduce-kv: expects a map or vector, got a string
(reductions + [1 2 3]) => [1 3 6]
(reductions + 10 [1]) => [10 11]
(reductions + []) => []
(reductions (fn [a x] (if (> x 1) (reduced :end) x)) 0 [1 2 3]) => [0 1 :end]
(reductions + 5) !! reductions: expects a collection
(sum-by :a [{:a 1} {:a nil} {} {:a 2.5}]) => 3.5
(sum-by :a []) => 0
(sum-by "a" [{:a 1} {"a" 2}]) => 3
(sum-by second {:x 1 :y 2}) => 3
(sum-by [:a :b] [{:a {:b 4}} {:a {}}]) => 4
(sum-by :a [{:a 1} {:a "2"}]) !! sum-by: expects numbers, got a string (item 1)
(sum-by :a 5) !! sum-by: expects a collection
(sum-by :a [{:a true}]) !! got a boolean
(avg-by :a [{:a 1} {:a 2} {:a nil}]) => 1.5
(avg-by :a []) => nil
(avg-by :a [{:b 1}]) => nil
(avg-by :a [{:a :x}]) !! avg-by: expects numbers, got a keyword
(sum [1 nil 2]) => 3
(sum []) => 0
(sum {:a 1}) !! sum: expects numbers, got a vector
(avg [1 2]) => 1.5
(avg nil) => nil
(avg ["a"]) !! avg: expects numbers
(min-by :a [{:a 2} {:a nil} {:a 1 :x 1} {:a 1 :x 2}]) => {:a 1 :x 1}
(min-by :a []) => nil
(min-by first [[2 :x] [1 :y]]) => [1 :y]
(min-by :a [{:a "b"} {:a "a"}]) => {:a "a"}
(min-by :a [{:a "x"} {:a 1}]) !! cannot compare
(max-by :a [{:a 1} {:a 2}]) => {:a 2}
(max-by :a [{} {:a nil}]) => nil
(max-by second {:x 1 :y 9}) => [:y 9]
(max-by :a 3) !! max-by: expects a collection
(max-key count "a" "abc" "ab") => "abc"
(max-key :a {:a 1}) => {:a 1}
(max-key :a {:a 5} {:a 1} {:a 5 :b 1}) => {:a 5 :b 1}
(min-key :a {:a 5} {:a 1} {:a 1 :b 1}) => {:a 1 :b 1}
(apply max-key :n [{:n 1} {:n 3} {:n 2}]) => {:n 3}
(max-key name :a :b) => :b
(max-key identity 1 "a") !! cannot compare
(min-key count "abc" "a") => "a"
(min-key abs -3 2) => 2
(min-key abs "a") !! abs: expects a number
(group-by :a [{:a 1} {:a 2} {:a 1 :b 1}]) => {1 [{:a 1} {:a 1 :b 1}] 2 [{:a 2}]}
(group-by odd? [1 2 3]) => {true [1 3] false [2]}
(group-by :a [{}]) => {nil [{}]}
(group-by (juxt :a :b) [{:a 1 :b 2} {:a 1 :b 2}]) => {[1 2] [{:a 1 :b 2} {:a 1 :b 2}]}
(group-by :a nil) => {}
(group-by :a 5) !! group-by: expects a collection
(count-by :k [{:k "a"} {:k "a"}]) => {"a" 2}
(count-by even? [1 2 3]) => {false 2 true 1}
(count-by :k 1) !! count-by: expects a collection
(frequencies ["a" "b" "a"]) => {"a" 2 "b" 1}
(frequencies [true 1 true nil]) => {true 2 1 1 nil 1}
(frequencies "aab") => {"a" 2 "b" 1}
(frequencies []) => {}
(frequencies 1) !! frequencies: expects a collection
(index-by :id [{:id 1 :v 1} {:id 1 :v 2}]) => {1 {:id 1 :v 2}}
(index-by :id []) => {}
(index-by :id 1) !! index-by: expects a collection
(some even? [1 2]) => true
(some :a [{:a 1}]) => 1
(some #{3} [1 2]) => nil
(some even? nil) => nil
(some 1 [1]) !! not callable
(every? even? [2 4]) => true
(every? even? []) => true
(every? :a [{:a 1} {}]) => false
(every? even? 1) !! every?: expects a collection
(not-any? even? [1 3]) => true
(not-any? even? [2]) => false
(not-any? even? 2) !! not-any?: expects a collection
(not-every? even? [1 2]) => true
(not-every? even? [2]) => false
(not-every? even? 2) !! not-every?: expects a collection
